"""Tells near-ties from wrong texts: where two texts of one request part, how far apart the two tokens' scores were.

Owns a model of its own in this process, read when the first parting is judged. The noise is the largest change of a
position's top-2 logit gap between forwards of one position and of as many as a round of many rows has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from harness import Sample
from mixed_asks import COUPLED, Mixed
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.uniforms import UniformSupply
from mtplxd.packs.pack import Pack
from mtplxd.tune.identity import Identity, Parting, first_difference
from mtplxd.tune.identity_margins import judge_coupled, judge_greedy
from support.reference_laws import shaped_logits
from workbench import Workbench

WIDTHS = (2, 4, 8, 16, 32, 64)
"""Positions of a forward that the noise is measured at: up to 16 rows of 4."""
NOISE_TEXTS = 3
NOISE_TOKENS = 32


class Judge:
    """Judges partings of one pack's texts. Nothing is loaded before it is asked."""

    def __init__(self, pack: Pack, texts: Sequence[tuple[Mixed, list[int]]]) -> None:
        """`texts` are answers to measure the noise on."""
        self._pack, self._texts = pack, texts[:NOISE_TEXTS]
        self._bench: Workbench | None = None
        self._noise = 0.0

    @property
    def noise(self) -> float:
        """Of the top-2 gap; 0 until a parting was judged."""
        return self._noise

    def judge(self, ask: Mixed, alone: Sequence[int], other: Sequence[int]) -> Parting:
        """Of two texts that part: the margin by which the lone text's token won there."""
        place = first_difference(alone, other)
        assert place is not None, "the texts do not part"
        bench = self._open()
        return bench.call(lambda: self._judge(bench, ask, alone[:place], alone[place], other[place]))

    def _open(self) -> Workbench:
        if self._bench is None:
            bench = self._bench = Workbench(self._pack, plain=True)
            prompts = [render(bench, ask) for ask, _ in self._texts]
            pairs = [
                (prompt, tokens[:NOISE_TOKENS])
                for prompt, (_, tokens) in zip(prompts, self._texts, strict=True)
            ]
            self._noise = bench.call(lambda: max(measure_noise(bench.model.target, *pair) for pair in pairs))
        return self._bench

    def _judge(self, bench: Workbench, ask: Mixed, common: Sequence[int], won: int, lost: int) -> Parting:
        prompt = render(bench, ask)
        raw = logits_after(bench.model.target, [*prompt, *common])
        sampler = settings_of(ask)
        if ask.promise != COUPLED:
            ids = [won, lost]  # both were allowed by what the text must match
            shaped = shaped_logits(raw[ids], sampler, tuple(prompt), tuple(common), ids=ids)
            return both_ways(lambda one, other: judge_greedy(shaped, one, other, self._noise), 0, 1)
        shaped = shaped_logits(raw, sampler, tuple(prompt), tuple(common))
        times = np.array(UniformSupply(sampler.seed).race(len(prompt) + len(common), len(raw)))
        law = sampler.temperature, sampler.top_p
        return both_ways(
            lambda one, other: judge_coupled(shaped, times, *law, one, other, self._noise), won, lost
        )


def both_ways(judge: Callable[[int, int], Parting], won: int, lost: int) -> Parting:
    """A near-tie whichever of the two texts is the right one: nothing says that the lone one is."""
    there, back = judge(won, lost), judge(lost, won)
    return Parting(there.margin, there.near_tie and back.near_tie)


def render(bench: Workbench, ask: Mixed) -> list[int]:
    """The prompt's ids, as the daemon's."""
    return bench.model.tokenizer.render_chat([{"role": "user", "content": ask.prompt.strip()}])


def settings_of(ask: Mixed) -> SamplerSettings:
    """What of the sampler shapes logits or draws."""
    names = ("temperature", "top_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed")
    given = {name: ask.options[name] for name in names if name in ask.options}
    bias = tuple(sorted(ask.options.get("logit_bias", {}).items()))
    return SamplerSettings(**given, logit_bias=bias)


def logits_after(target: Any, ids: Sequence[int]) -> np.ndarray:
    """Raw logits float32 [V] after the ids, the last of them run alone, as plain decoding does."""
    return _walk(target, ids, len(ids) - 1, 1)[0]


def measure_noise(target: Any, prompt: Sequence[int], tokens: Sequence[int]) -> float:
    """The largest change of a top-2 gap over the text between one position a forward and several, prompt included."""
    ids = [*prompt, *tokens]
    begin = len(prompt) - 1
    one = _walk(target, ids, begin, 1)
    best = np.argsort(one, axis=1)[:, -2:]
    rows = np.arange(len(one))
    gaps = one[rows, best[:, 1]] - one[rows, best[:, 0]]
    largest = 0.0
    for width in WIDTHS:
        many = _walk(target, ids, begin, width)
        changed = many[rows, best[:, 1]] - many[rows, best[:, 0]] - gaps
        largest = max(largest, float(np.abs(changed).max()))
    return largest


def _walk(target: Any, ids: Sequence[int], begin: int, width: int) -> np.ndarray:
    """Logits [n, V] after ids[: begin + 1] and each longer beginning; `width` positions a forward.

    One position a forward is plain decoding, whose prompt goes in one forward.
    """
    from mtplxd.platform.mlx import mx

    cache = target.make_cache(1)
    found: list[np.ndarray] = []
    at = 0
    while at < len(ids):
        count = begin if width == 1 and at < begin else width
        hidden, _ = target.run(mx.array([list(ids[at : at + count])], mx.int32), cache)
        if at + count > begin:
            wanted = hidden[:, max(0, begin - at) :]
            found.append(np.array(target.logits(wanted)[0].astype(mx.float32)))
        else:
            mx.eval(hidden)
        at += count
    return np.concatenate(found)


def compare_texts(name: str, pairs: Sequence[tuple[Mixed, list[int], list[int]]], judge: Judge) -> Sample:
    """What to report of texts that may part where rounding decides: counts, and each parting with its margin."""
    found = Identity()
    for at, pair in enumerate(pairs):
        _, alone, other = pair
        found.compare(at, 0, alone, other, lambda *_, pair=pair: judge.judge(*pair))
    return {
        f"{name}_texts": len(pairs),
        f"{name}_divergences": found.divergences,
        f"{name}_near_ties": found.near_ties,
        f"{name}_margins": [one.margin for one in found.found],
    }


def ends_differ(alone: Sequence[int], other: Sequence[int]) -> bool:
    """Whether one text goes on where the other, the same so far, has ended."""
    return first_difference(alone, other) is None and len(alone) != len(other)
