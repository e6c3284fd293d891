"""One request's text as it is made: its row, where it ends, what its owner hears, its numbers. Runs no forward."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from mtplxd.engine.events import (
    GRAMMAR,
    NON_FINITE,
    Finished,
    Logprobs,
    Progress,
    Sink,
    Stats,
    Text,
    TokenLogprob,
)
from mtplxd.engine.request import COUPLED, GREEDY, Request
from mtplxd.engine.round import Landing
from mtplxd.engine.row import Row
from mtplxd.engine.stopping import End, StopRule
from mtplxd.engine.text import TextStream
from mtplxd.engine.uniforms import UniformSupply

Poll = Callable[[], str | None]
"""Gives the origin of a cancel (client, deadline, operator, shutdown), None to go on."""

_BROKEN = {
    NON_FINITE: End(
        "error",
        "non_finite",
        "the model gave non-finite numbers: verify the pack's files, then load it again",
    ),
    GRAMMAR: End(
        "error", "grammar", "what the text must match could not be followed: simplify the schema or grammar"
    ),
}


@dataclass(slots=True)
class Clock:
    """Moments of one answer on the monotonic performance clock."""

    submitted: float
    started: float = 0.0
    prefilled: float = 0.0
    first: float = 0.0
    last: float = 0.0


class Stream:
    """One request on its way. `finish` is called once, and last."""

    def __init__(self, request: Request, row: Row, sink: Sink, poll: Poll, submitted: float) -> None:
        self.request, self.row = request, row
        self.clock = Clock(submitted, started=time.perf_counter())
        self.supply = UniformSupply(request.sampler.seed, racing=request.sampler.rule == COUPLED)
        self.cached, self.depth = 0, 0
        self.miss = ""
        self.restore_s = 0.0
        self._sink, self._poll = sink, poll
        self._text = TextStream(request.model.tokenizer, request.stop)
        self._stop = StopRule(request, row.matcher)
        self._unsent: list[int] = []
        self._unsent_logprobs: list[TokenLogprob] = []

    @property
    def made(self) -> int:
        """Tokens made so far."""
        return len(self.row.tokens) - len(self.request.prompt)

    @property
    def left(self) -> int:
        """How many more tokens could be made."""
        return self._stop.left(self.made)

    @property
    def tok_s(self) -> float:
        """Tokens a second between the first and the newest."""
        decoded = self.clock.last - self.clock.first
        return (self.made - 1) / decoded if decoded > 0 else 0.0

    def cancelled(self) -> End | None:
        """The end that its owner, its deadline or an operator asked for."""
        origin = self._poll()
        return End("cancelled", origin) if origin else None

    def prepare(self, depth: int, size: int) -> None:
        """Makes the numbers of the round that will probably follow one at `depth`; V is `size`."""
        row = self.row
        if row.rule == COUPLED:
            begin = len(row.tokens) + depth + 1
            for position in range(begin, begin + row.depth + 1):
                self.supply.race(position, size)
        elif row.rule != GREEDY:
            self.supply.uniforms(row.round, 2 * row.depth + 1)

    @property
    def decoding(self) -> bool:
        """Whether the prompt is read."""
        return self.clock.prefilled > 0

    def begin_decoding(self) -> None:
        """Notes that the prompt is read."""
        self.clock.prefilled = self.clock.prefilled or time.perf_counter()

    def report_prefill(self, done: int) -> None:
        """Tells how much of the prompt is read; nothing once all of it is."""
        total = len(self.request.prompt)
        if done < total - 1:
            self._sink(Progress("prefill", done, total))

    def take(self, landing: Landing) -> tuple[int, End | None]:
        """How many of a round's tokens are kept, and the end they reach; nothing is sent yet."""
        if landing.broken:
            return 0, _BROKEN[landing.broken]
        self.depth = landing.drafted
        self.clock.last = time.perf_counter()
        self.clock.first = self.clock.first or self.clock.last
        kept, end = self._stop.cut(landing.tokens, self.made, self._text)
        self._unsent += landing.tokens[:kept]
        self._unsent_logprobs += landing.logprobs[:kept]
        return kept, end

    def send(self, *, final: bool = False) -> None:
        """Hands on what became certain."""
        text = self._text.finish() if final else self._text.take()
        if self._unsent_logprobs:
            self._sink(Logprobs(tuple(self._unsent_logprobs)))
            self._unsent_logprobs = []
        if text or self._unsent:
            self._sink(Text(text, tuple(self._unsent)))
            self._unsent = []

    def finish(self, end: End) -> Finished:
        """Hands on the rest and the end."""
        self.send(final=True)
        finished = Finished(
            finish_reason=end.reason,
            stop_origin=end.origin,
            prompt_tokens=len(self.request.prompt),
            cached_tokens=self.cached,
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
        return Stats(
            ttft_s=max(0.0, clock.first - clock.submitted),
            tok_s=self.tok_s,
            rounds=counts.rounds,
            drafted=counts.drafted,
            accepted=sum(counts.accepted),
            accepted_by_position=tuple(counts.accepted),
            judged_by_position=tuple(counts.judged),
            depth=counts.usual_depth if self.request.auto else self.request.depth,
            exactness=self._exactness,
            queue_s=clock.started - clock.submitted,
            prefill_s=max(0.0, clock.prefilled - clock.started),
            decode_s=clock.last - clock.first,
            degraded=tuple(self.row.degraded),
            depth_rounds=tuple(counts.depths),
            cache_miss=self.miss,
            restore_s=self.restore_s if self.cached else 0.0,
        )
