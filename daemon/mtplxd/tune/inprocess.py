"""Makes the answers of a measurement inside the daemon: one request after the other on the engine thread.

Only for a function that `Engine.call` runs; others wait meanwhile. Plans and sums nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Finished, Sink, Text
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.errors import FailedPrecondition, Internal
from mtplxd.tune.measure import Poll, cancelled
from mtplxd.tune.plan import AUTO, Step
from mtplxd.tune.summary import Run

if TYPE_CHECKING:  # importing these imports MLX, which a daemon does after it is ready
    from mtplxd.engine.batch import Batch
    from mtplxd.families.load import LoadedModel

CLIENT = "measure"


def answer_inline(
    engine: Engine,
    request: Request,
    sink: Sink,
    poll: Poll,
    inspect: Callable[[Batch], None] | None = None,
) -> Finished:
    """`Engine.run_inline` for an answer that must reach its token limit.

    Raises Cancelled; FailedPrecondition where the model's numbers are none; Internal where it ended otherwise.
    """
    finished = engine.run_inline(request, sink, poll, inspect)
    if finished.finish_reason == "cancelled":
        raise cancelled(finished.stop_origin)
    if finished.stop_origin == "non_finite":
        raise FailedPrecondition(
            "the model gave non-finite numbers", request.model.name, "pull or build it again"
        )
    if finished.finish_reason != "length":
        raise Internal("an answer ended early", finished.stop_origin, finished.message or "measure again")
    return finished


class EngineRunner:
    """Answers `prompts` (token ids, by the prompt's index) with a model that the caller keeps in memory."""

    def __init__(
        self,
        engine: Engine,
        model: LoadedModel,
        prompts: Sequence[list[int]],
        sampler: SamplerSettings,
        *,
        ideal: bool = True,
    ) -> None:
        """With `ideal` a round's forwards are timed alone behind every answer, which takes as long as ten rounds."""
        self._engine, self._model, self._prompts, self._sampler = engine, model, prompts, sampler
        self._ideal = ideal

    def answer(self, step: Step, poll: Poll) -> Run:
        """Decodes to the token limit, stop tokens ignored, then may time the round's forwards on the same caches.

        Raises as `answer_inline`.
        """
        left: list[Batch] = []
        rounds = RoundTimes()
        inspect = left.append if self._ideal else None
        finished = answer_inline(self._engine, self._request(step), rounds, poll, inspect)
        stats = finished.stats
        return Run(
            prompt=step.prompt,
            depth=step.depth,
            tokens=finished.completion_tokens,
            first_s=stats.ttft_s,
            last_s=stats.ttft_s + stats.decode_s,
            stats=stats,
            ideal_round_ms=self._time_ideal(step, finished, left[0], poll) if left else 0.0,
            round_ms=rounds.median_ms,
        )

    def _request(self, step: Step) -> Request:
        return Request(
            id=f"{CLIENT}-{step.name}",
            client=CLIENT,
            model=self._model,
            prompt=list(self._prompts[step.prompt]),
            sampler=replace(self._sampler, seed=step.seed),
            max_tokens=step.tokens,
            ignore_eos=True,
            depth=self._model.depth_max if step.depth == AUTO else step.depth,
            auto=step.depth == AUTO,
        )

    def _time_ideal(self, step: Step, finished: Finished, batch: Batch, poll: Poll) -> float:
        from mtplxd.tune.ideal import time_ideal_round

        def go_on() -> None:
            if origin := poll():
                raise cancelled(origin)

        pairs = finished.completion_tokens / max(finished.stats.rounds, 1)
        middle = finished.prompt_tokens + finished.completion_tokens // 2
        depth = finished.stats.depth if step.depth == AUTO else step.depth
        return time_ideal_round(batch, depth, pairs, middle, go_on)


class RoundTimes:
    """Hears an answer's events, one with tokens a round, and keeps when they came.

    The median compares with the ideal round's, which is a median too: a stall of the machine moves neither.
    """

    def __init__(self) -> None:
        self._stamps: list[float] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, Text) and event.tokens:
            self._stamps.append(time.perf_counter())

    @property
    def median_ms(self) -> float:
        """0 where fewer than two rounds were heard."""
        spans = [later - earlier for earlier, later in pairwise(self._stamps)]
        return 1e3 * median(spans) if spans else 0.0
