"""Decodes one request on the engine thread: prefill, rounds, text, events, numbers. Knows no other request."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from mtplxd.engine.batch import open_batch
from mtplxd.engine.events import Finished, Logprobs, Progress, Sink, Stats, Text, TokenLogprob
from mtplxd.engine.fixed_shape import room_in_block
from mtplxd.engine.prefill import CHUNK, prefill
from mtplxd.engine.request import COUPLED, GREEDY, Request
from mtplxd.engine.round import Flight, Landing, commit, discard, land, launch
from mtplxd.engine.stopping import End, StopRule
from mtplxd.engine.text import TextStream
from mtplxd.engine.uniforms import RoundUniforms, UniformSupply
from mtplxd.platform.mlx import Array

Poll = Callable[[], str | None]
"""Gives the origin of a cancel (client, deadline, operator, shutdown), None to go on."""

_NON_FINITE = End(
    "error", "non_finite", "the model gave non-finite numbers: verify the pack's files, then load it again"
)


@dataclass(slots=True)
class Clock:
    """Moments of one answer on the monotonic performance clock."""

    submitted: float
    started: float = 0.0
    prefilled: float = 0.0
    first: float = 0.0
    last: float = 0.0


class Decoder:
    """One request on its way. `run` ends with exactly one Finished; `batch` stays readable afterwards."""

    def __init__(
        self, request: Request, sink: Sink, poll: Poll, submitted: float, chunk: int = CHUNK
    ) -> None:
        self.request = request
        self.batch = open_batch(request)
        self.row = self.batch.rows[0]
        self.clock = Clock(submitted)
        self._sink, self._poll, self._chunk = sink, poll, chunk
        self._text = TextStream(request.model.tokenizer, request.stop)
        self._stop = StopRule(request, self.row.matcher)
        self._unsent: list[int] = []
        self._unsent_logprobs: list[TokenLogprob] = []
        self._uniforms = UniformSupply(request.sampler.seed)

    @property
    def made(self) -> int:
        """Tokens made so far."""
        return len(self.row.tokens) - len(self.request.prompt)

    def run(self) -> Finished:
        """Decodes to the end and reports it."""
        self.clock.started = time.perf_counter()
        end = self._prefill() or self._play()
        return self._finish(end)

    def _prefill(self) -> End | None:
        total = len(self.request.prompt)
        for done in prefill(self.batch, self.request.prompt, self._chunk):
            if origin := self._poll():
                return _cancelled(origin)
            if done < total - 1:
                self._sink(Progress("prefill", done, total))
        self.clock.prefilled = time.perf_counter()
        return None

    def _play(self) -> End:
        """Rounds until the text ends. What a user sees of a round is sent after its successor is launched."""
        flight = self._launch()
        while True:
            ahead = self._launch_ahead(flight)
            self._prepare(flight)
            [landing] = land(self.batch, flight)
            if ahead and (landing.redone or not landing.finite):
                self._drop(ahead)
                ahead = None
            kept, end = self._take(landing)
            commit(self.batch, flight, [landing], [kept], ahead=1 if ahead else 0)
            end = end or self._cancelled()
            if end:
                if ahead:
                    self._drop(ahead)
                return end
            flight = ahead or self._launch()
            self._send()

    def _launch(self, last: Array | None = None) -> Flight:
        row = self.row
        length = max(0, min(row.depth, self._stop.left(self.made) - 1))
        if self.batch.width is not None:
            length = min(length, room_in_block(len(row.tokens)))
        position = len(row.tokens) + (last is not None)
        source = RoundUniforms([self._uniforms], [row.round], [position])
        row.round += 1
        return launch(self.batch, source, [length], last)

    def _launch_ahead(self, flight: Flight) -> Flight | None:
        """At depth 0 the next round needs nothing from this one that the host must see first.

        A grammar must see the token, and one shape for all forwards leaves no slot for a second one.
        """
        row = self.row
        waits = row.matcher is not None or self.batch.width is not None
        if flight.depth or row.depth or waits or self._stop.left(self.made) < 2:
            return None
        return self._launch(flight.judgement.token)

    def _prepare(self, flight: Flight) -> None:
        """Makes the numbers of the round that will probably follow while this one runs."""
        row = self.row
        if row.rule == COUPLED:
            begin = len(row.tokens) + flight.depth + 1
            for position in range(begin, begin + row.depth + 1):
                self._uniforms.race(position, self.batch.target.vocab_size)
        elif row.rule != GREEDY:
            self._uniforms.uniforms(row.round, 2 * row.depth + 1)

    def _drop(self, ahead: Flight) -> None:
        """Takes back a successor that turned out to build on nothing."""
        discard(self.batch, ahead)
        self.row.round -= 1

    def _take(self, landing: Landing) -> tuple[int, End | None]:
        if not landing.finite:
            return 0, _NON_FINITE
        self.clock.last = time.perf_counter()
        self.clock.first = self.clock.first or self.clock.last
        kept, end = self._stop.cut(landing.tokens, self.made, self._text)
        self._unsent += landing.tokens[:kept]
        self._unsent_logprobs += landing.logprobs[:kept]
        return kept, end

    def _cancelled(self) -> End | None:
        origin = self._poll()
        return _cancelled(origin) if origin else None

    def _send(self, *, final: bool = False) -> None:
        text = self._text.finish() if final else self._text.take()
        if self._unsent_logprobs:
            self._sink(Logprobs(tuple(self._unsent_logprobs)))
            self._unsent_logprobs = []
        if text or self._unsent:
            self._sink(Text(text, tuple(self._unsent)))
            self._unsent = []

    def _finish(self, end: End) -> Finished:
        self._send(final=True)
        finished = Finished(
            finish_reason=end.reason,
            stop_origin=end.origin,
            prompt_tokens=len(self.request.prompt),
            cached_tokens=0,
            completion_tokens=self.made,
            stats=self._stats(),
            message=end.message,
        )
        self._sink(finished)
        return finished

    @property
    def _exactness(self) -> str:
        """Said of a text that should be one at every depth: whether forwards here are stable enough for it."""
        fixed = self.request.sampler.reproducible
        return "near-tie" if fixed and not self.request.model.shape_stable else "exact"

    def _stats(self) -> Stats:
        clock, counts = self.clock, self.row.counts
        decoded = clock.last - clock.first
        return Stats(
            ttft_s=max(0.0, clock.first - clock.submitted),
            tok_s=(self.made - 1) / decoded if decoded > 0 else 0.0,
            rounds=counts.rounds,
            drafted=counts.drafted,
            accepted=sum(counts.accepted),
            accepted_by_position=tuple(counts.accepted),
            judged_by_position=tuple(counts.judged),
            depth=self.request.depth,
            exactness=self._exactness,
            queue_s=clock.started - clock.submitted,
            prefill_s=max(0.0, clock.prefilled - clock.started),
            decode_s=decoded,
            degraded=tuple(self.row.degraded),
        )


def _cancelled(origin: str) -> End:
    return End("cancelled", origin)
