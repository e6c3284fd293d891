"""Compares rows of unequal length that share forwards with what each is alone, over a few tokens, at load.

mlx-lm's classes are written for rows of one length. Most take any; one that does not would give wrong text to whoever
shares a forward, so that its rows take turns instead. Nothing is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtplxd.families.body import Body
from mtplxd.families.body_check import checked_parts, difference, tolerance
from mtplxd.families.foreign import reason_of
from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import Array, mx

BEHIND = (0, 2)
"""The parts of the checked text that each row is behind: their lengths are unequal, and what follows is known."""
ROUNDS: tuple[tuple[int, tuple[int, int]], ...] = ((2, (1, 2)), (1, (1, 1)), (1, (1, 1)))
"""Positions of each forward, and how many of them each row keeps. The last is a second opinion on one position."""


def why_apart(body: Body, behind: Sequence[list[LayerCache]], expected: Sequence[Array]) -> str:
    """Why this body's rows cannot share forwards, "" where they can.

    `behind` are the caches behind each part of the checked text but the last, which are used up, `expected` its
    logits. Costs two forwards of a few positions.
    """
    kind = getattr(body.model, "model_type", type(body.model).__name__)
    try:
        sound = _share(body, behind, expected)
    except Exception as error:  # foreign code that knows no offset a row raises what it likes
        return f"{kind} cannot compute rows of unequal length together ({reason_of(error)})"
    return "" if sound else f"{kind} computes rows of unequal length wrongly when they share a forward"


def _share(body: Body, behind: Sequence[list[LayerCache]], expected: Sequence[Array]) -> bool:
    """Whether two rows get the logits they would get alone, forward by forward."""
    parts = list(checked_parts(body.vocab_size))
    text = [token for part in parts for token in part]
    logits = mx.concatenate(list(expected))
    held = [sum(map(len, parts[: place + 1])) for place in BEHIND]
    cache, other = (behind[place] for place in BEHIND)
    for mine, theirs in zip(cache, other, strict=True):
        mine.join(theirs)
    doubted: set[int] = set()
    for count, kept in ROUNDS:
        wrong = _wrong_rows(body, cache, text, logits, held, count)
        if wrong & doubted or (wrong and count > 1):
            return False
        doubted = wrong
        held = [begin + some for begin, some in zip(held, kept, strict=True)]
        for layer in cache:
            layer.roll_back(held)
        if count == 1 and not wrong:
            return True
    return True


def _wrong_rows(
    body: Body, cache: list[LayerCache], text: Sequence[int], logits: Array, held: Sequence[int], count: int
) -> set[int]:
    """The rows that are off in a forward of `count` positions: anywhere, or where rounding may pick another expert
    everywhere."""
    tokens = mx.array([text[begin : begin + count] for begin in held], mx.int32)
    found = body.logits(body.run(tokens, cache)[0])
    strict = max if found.dtype == mx.float32 else min
    return {
        row
        for row, begin in enumerate(held)
        if strict(
            difference(found[row, place : place + 1], logits[begin + place : begin + place + 1])
            for place in range(count)
        )
        > tolerance(found)
    }
