"""Forwards of a body over a text that is already there: in rows of one, in rows of a round, and all at once.

Only for the engine thread. The numbers come out as float32 in numpy; what they prove is judged elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mtplxd.engine.batch import open_batch
from mtplxd.engine.prefill import prefill
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import Array, mx
from mtplxd.tune.verify_chain import Floats

GoOn = Callable[[], None]
"""Called between forwards; may raise."""


def measure_shape_noise(
    model: LoadedModel, prompt: Sequence[int], tokens: Sequence[int], depths: Sequence[int], go_on: GoOn
) -> float:
    """The largest change of a position's top-2 logit gap between forwards of 1 row and of depth + 1 rows.

    The two ids are those of the 1-row forward; each walk through the text fills a cache of its own.
    """
    firsts, seconds, gaps = [], [], []
    for [logits] in _walk(model, prompt, tokens, 1, go_on):
        second, first = np.argpartition(logits, -2)[-2:]
        if logits[second] > logits[first]:
            first, second = second, first
        firsts.append(first)
        seconds.append(second)
        gaps.append(float(logits[first]) - float(logits[second]))
    largest = 0.0
    for depth in depths:
        place = 0
        for rows in _walk(model, prompt, tokens, depth + 1, go_on):
            for logits in rows:
                gap = float(logits[firsts[place]]) - float(logits[seconds[place]])
                largest = max(largest, abs(gap - gaps[place]))
                place += 1
    return largest


def plain_logits(model: LoadedModel, prompt: Sequence[int], tokens: Sequence[int], go_on: GoOn) -> Floats:
    """The raw logits [V] plain decoding drew the token after `tokens` from: the same forwards, one by one."""
    found = np.empty(0, np.float32)
    for [found] in _walk(model, prompt, [*tokens, 0], 1, go_on):  # noqa: B007 - the last is wanted
        pass
    return found


def teach(model: LoadedModel, prompt: Sequence[int], tokens: Sequence[int]) -> Floats:
    """The raw logits [n, V] before each of n tokens, by one forward over the whole text."""
    text = [*prompt, *tokens[:-1]]
    hidden, _ = model.target.run(mx.array([text], mx.int32), model.target.make_cache(1))
    return _read(model.target.logits(hidden[:, len(prompt) - 1 :]))


def _walk(
    model: LoadedModel, prompt: Sequence[int], tokens: Sequence[int], rows: int, go_on: GoOn
) -> Iterator[Floats]:
    """Logits [rows, V] before each of the tokens, so many positions a forward, after a prefill as the engine's."""
    request = Request("verify", "verify", model, list(prompt), SamplerSettings(temperature=0.0), len(tokens))
    batch = open_batch(request)
    for _ in prefill(batch, prompt):
        go_on()
    fed = [prompt[-1], *tokens[:-1]]
    for begin in range(0, len(fed), rows):
        go_on()
        hidden, _ = batch.target.run(mx.array([fed[begin : begin + rows]], mx.int32), batch.cache)
        yield _read(batch.target.logits(hidden))


def _read(logits: Array) -> Floats:
    return np.array(logits[0].astype(mx.float32))
