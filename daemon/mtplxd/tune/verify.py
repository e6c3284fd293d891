"""Runs a verification inside the daemon: texts through the engine's own rounds, their laws by plain forwards.

Only for a function that `Engine.call` runs; others wait meanwhile. What the numbers mean is `identity`'s, `law_test`'s
and `verification`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Stats
from mtplxd.engine.events import Text as TextEvent
from mtplxd.engine.request import Request
from mtplxd.engine.uniforms import UniformSupply
from mtplxd.families.load import LoadedModel
from mtplxd.tune.identity import Identity, Parting
from mtplxd.tune.identity_margins import judge_coupled, judge_greedy
from mtplxd.tune.inprocess import answer_inline
from mtplxd.tune.law_test import judge_laws, mark_tokens
from mtplxd.tune.measure import Poll, Progress, cancelled
from mtplxd.tune.verification import (
    GREEDY,
    LawTest,
    Plan,
    Text,
    Verification,
    plan_coupled_texts,
    plan_law_texts,
)
from mtplxd.tune.verify_chain import Floats
from mtplxd.tune.verify_forwards import measure_shape_noise, plain_logits, teach

CLIENT = "verify"
_SEED = 7
"""Of the uniforms that spread a token over its part of the scale."""


@dataclass(slots=True)
class _Pace:
    """How far a verification is, in tokens or forwards of about their cost."""

    total: int
    report: Callable[[Progress], None]
    clock: Callable[[], float]
    begin: float = field(init=False)
    done: int = 0

    def __post_init__(self) -> None:
        self.begin = self.clock()
        self.report(Progress(0, self.total, 0.0))

    def add(self, count: int) -> None:
        """Tells of so many more."""
        self.done += count
        spent, left = self.clock() - self.begin, max(self.total - self.done, 0)
        self.report(Progress(self.done, self.total, spent * left / self.done))


class Verifier:
    """One verification of a model that the caller keeps in memory; `run` once."""

    def __init__(
        self,
        engine: Engine,
        model: LoadedModel,
        plan: Plan,
        report: Callable[[Progress], None],
        poll: Poll,
        clock: Callable[[], float],
    ) -> None:
        self._engine, self._model, self._plan, self._poll = engine, model, plan, poll
        self._reached = 0
        self._pace = _Pace(self._weigh(), report, clock)
        self._degraded: dict[tuple[int, str], None] = {}
        self._known: dict[tuple[Text, int], Floats] = {}
        self._noise = 0.0

    def run(self) -> Verification:
        """Raises Cancelled within a round of being asked, and what decoding raises."""
        greedy = self._decode_all(lambda depth: [Text(at, depth, GREEDY) for at in self._prompts])
        self._noise = max(self._measure_noise(text, tokens) for text, tokens in greedy[0])
        coupled = self._decode_all(lambda depth: plan_coupled_texts(self._plan, depth))
        return Verification(
            depths=self._plan.depths,
            shape_noise=self._noise,
            greedy=self._compare(greedy, self._judge_greedy),
            coupled=self._compare(coupled, self._judge_coupled),
            law=self._test_laws(),
            degraded=tuple(self._degraded),
        )

    @property
    def _prompts(self) -> range:
        return range(len(self._plan.prompts))

    def _weigh(self) -> int:
        plan = self._plan
        texts = 3 * len(plan.prompts) * (1 + len(plan.drafting)) + len(plan_law_texts(plan, 0))
        return texts * plan.tokens + len(plan.prompts) * self._noise_weight

    @property
    def _noise_weight(self) -> int:
        plan = self._plan
        return sum(-(-plan.tokens // (depth + 1)) for depth in (0, *plan.drafting))

    def _decode_all(
        self, texts_at: Callable[[int], list[Text]]
    ) -> dict[int, list[tuple[Text, tuple[int, ...]]]]:
        """Every text at every depth, plain decoding first."""
        return {
            depth: [(text, self._decode(text)) for text in texts_at(depth)]
            for depth in (0, *self._plan.drafting)
        }

    def _decode(self, text: Text) -> tuple[int, ...]:
        tokens: list[int] = []

        def hear(event: Event) -> None:
            if isinstance(event, TextEvent):
                tokens.extend(event.tokens)

        request = Request(
            id=f"{CLIENT}-{text.prompt}:{text.depth}",
            client=CLIENT,
            model=self._model,
            prompt=list(self._plan.prompts[text.prompt]),
            sampler=text.sampler,
            max_tokens=self._plan.tokens,
            ignore_eos=True,
            depth=text.depth,
        )
        finished = answer_inline(self._engine, request, hear, self._poll)
        self._note(text.depth, finished.stats)
        self._pace.add(self._plan.tokens)
        return tuple(tokens)

    def _note(self, depth: int, stats: Stats) -> None:
        self._degraded.update({(depth, reason): None for reason in stats.degraded})
        accepted = enumerate(stats.accepted_by_position, start=1)
        self._reached = max(self._reached, *(place for place, count in accepted if count), 0)

    def _measure_noise(self, text: Text, tokens: tuple[int, ...]) -> float:
        prompt, depths = self._plan.prompts[text.prompt], self._plan.drafting
        noise = measure_shape_noise(self._model, prompt, tokens, depths, self._go_on)
        self._pace.add(self._noise_weight)
        return noise

    def _compare(
        self,
        found: dict[int, list[tuple[Text, tuple[int, ...]]]],
        judge: Callable[[Text, tuple[int, ...], int, int, int], Parting],
    ) -> Identity:
        result = Identity()
        for depth in self._plan.drafting:
            for (text, plain), (_, drafted) in zip(found[0], found[depth], strict=True):
                result.compare(text.prompt, depth, plain, drafted, partial(judge, text, plain))
        return result

    def _judge_greedy(
        self, text: Text, tokens: tuple[int, ...], place: int, plain: int, other: int
    ) -> Parting:
        return judge_greedy(self._logits(text, tokens, place), plain, other, self._noise)

    def _judge_coupled(
        self, text: Text, tokens: tuple[int, ...], place: int, plain: int, other: int
    ) -> Parting:
        logits, sampler = self._logits(text, tokens, place), text.sampler
        position = len(self._plan.prompts[text.prompt]) + place
        times = np.array(UniformSupply(sampler.seed).race(position, self._model.target.vocab_size))
        return judge_coupled(logits, times, sampler.temperature, sampler.top_p, plain, other, self._noise)

    def _logits(self, text: Text, tokens: tuple[int, ...], place: int) -> Floats:
        """What plain decoding drew token `place` of a text from; texts part at few places, whatever the depth."""
        key = (text, place)
        if key not in self._known:
            prompt = self._plan.prompts[text.prompt]
            self._known[key] = plain_logits(self._model, prompt, tokens[:place], self._go_on)
        return self._known[key]

    def _test_laws(self) -> LawTest:
        rng = np.random.default_rng(_SEED)
        marks = []
        for text in plan_law_texts(self._plan, self._reached):
            tokens = self._decode(text)
            logits = teach(self._model, self._plan.prompts[text.prompt], tokens)
            temperature, top_p = text.sampler.temperature, text.sampler.top_p
            marks.append(mark_tokens(logits, tokens, temperature, top_p, 2 * self._noise, rng))
        return judge_laws(marks)

    def _go_on(self) -> None:
        if origin := "shutdown" if self._engine.stopping else self._poll():
            raise cancelled(origin)
