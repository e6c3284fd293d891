"""What a head must absorb before a row that drafted nothing for long can draft: how much of it with the others, how
much apart. Chooses no drafts.

One forward for all rows is as wide as the longest wait. Where waits are very unequal it pays to bring the long ones
close first, each in forwards of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import mx

if TYPE_CHECKING:
    from mtplxd.engine.batch import Batch

APART_COST = 24
"""What forwards of one row and putting it back cost beside their positions, in positions."""
SHARED_MOST, SHARED_LEAST = 512, 16
"""Most positions, rows times width, that all rows absorb at once; so many pairs of each may be at any width."""
APART_MOST = 512
"""Pairs absorbed apart in a round, of the first such row whatever it takes: others wait for a later round."""
CHUNK = 128
"""Most pairs a forward of one row takes."""


def share_width(waiting: Sequence[int], rows: int) -> tuple[int, Collection[int]]:
    """The width of the shared forward, and whose longer waits are absorbed apart before it.

    `waiting[b]` are the pairs of a row that drafts, 0 of one that does not; forwards have `rows` rows.
    """
    counts = [count for count in waiting if count]
    if not counts:
        return 0, ()
    most = max(SHARED_LEAST, SHARED_MOST // rows)
    widths = {min(count, most) for count in counts}
    width = min(widths, key=lambda width: (_cost(counts, rows, width), -width))
    turn: list[int] = []
    left = APART_MOST
    for b, count in enumerate(waiting):
        if count > width and (not turn or count - width <= left):
            turn.append(b)
            left -= count - width
    return width, turn


def absorb_apart(batch: Batch, place: int, count: int) -> None:
    """Runs a row's first `count` waiting pairs through the head in forwards of one row; those wait no longer.

    Nothing is changed where it raises.
    """
    row, one = batch.rows[place], batch.copy_row(place)
    assert one.head is not None
    assert row.pending is not None
    tokens, taps = row.pending.first(count)
    for begin in range(0, count, CHUNK):
        part = slice(begin, begin + CHUNK)
        one.head.absorb(
            mx.array([tokens[part]], mx.int32), tuple(tap[:, part] for tap in taps), one.head_cache
        )
    for layer, own in zip(batch.head_cache, one.head_cache, strict=True):
        _put_back(layer, place, own)
    row.pending.drop_first(count)


def _cost(counts: Sequence[int], rows: int, width: int) -> int:
    """In positions of a forward."""
    return rows * width + sum(count - width + APART_COST for count in counts if count > width)


def _put_back(layer: LayerCache, place: int, own: LayerCache) -> None:
    """Replaces a row of several by the one row of `own`."""
    last = len(layer.lengths) - 1
    end = layer.copy_row(last) if place != last else None
    layer.leave(place)  # the last row stands here now
    layer.join(own)
    if end is not None:
        layer.leave(place)  # and `own` does
        layer.join(end)
