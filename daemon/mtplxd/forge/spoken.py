"""What a target says by itself after some prompts, with every hidden state that a head might take. Knows no head.

The texts are made once; a head that is tried on them in several ways is compared along the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtplxd.errors import Cancelled
from mtplxd.families.protocols import Taps, Target
from mtplxd.platform.mlx import Array, mx


@dataclass(frozen=True)
class Spoken:
    """`tokens` are the prompt's and those said; the first `prompt` of them were given.

    `taps` are the states behind each of them but the last, arrays of [1, L - 1, H].
    """

    tokens: tuple[int, ...]
    prompt: int
    taps: Taps


def speak(target: Target, prompt: Sequence[int], count: int, cancelled: Callable[[], bool]) -> Spoken:
    """The prompt and its `count` most likely tokens, one after the other. Raises Cancelled."""
    cache = target.make_cache(1)
    tokens, parts = list(prompt), []
    fresh = mx.array([tokens], mx.int32)
    for _ in range(count):
        if cancelled():
            raise Cancelled("calibration was cancelled")
        hidden, taps = target.run(fresh, cache)
        chosen = mx.argmax(target.logits(hidden[:, -1:]), axis=-1)
        mx.eval(chosen, *taps)
        parts.append(taps)
        tokens.append(int(chosen.item()))
        fresh = chosen.astype(mx.int32)
    return Spoken(tuple(tokens), len(prompt), tuple(map(_join, zip(*parts, strict=True))))


def _join(parts: Sequence[Array]) -> Array:
    joined = mx.concatenate(parts, axis=1)
    mx.eval(joined)
    return joined
