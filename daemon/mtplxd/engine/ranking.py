"""Finds the largest of a vocabulary's numbers, in order. Knows nothing of laws.

No sort of the whole vocabulary: MLX's CPU sort of 49k takes 4 to 6 ms a position, its partition 0.4, this 0.1.
"""

from __future__ import annotations

from typing import NamedTuple

from mtplxd.platform.mlx import Array, mx

STRIPS = 8
"""Rows that a large vocabulary is laid out in to find the candidates."""


class Ranking(NamedTuple):
    """The `c` largest of V numbers, each array [..., c].

    `ids` ascend; `order` are places in `ids`, by descending value, equal values by ascending id; `values` stand in that
    order. No id outside has a value above the least of them; `all` where there is no id outside.
    """

    ids: Array
    order: Array
    values: Array
    all: bool


def rank(numbers: Array, count: int) -> Ranking:
    """Ranks the `count` largest of [..., V]; where more are equal to the least of them, any of those are left out."""
    size = numbers.shape[-1]
    if count >= size:
        ids = mx.broadcast_to(mx.arange(size, dtype=mx.int32), numbers.shape)
        found = numbers
    else:
        ids = mx.sort(_find(numbers, count), axis=-1)
        found = mx.take_along_axis(numbers, ids, axis=-1)
    order = mx.argsort(-found, axis=-1)  # stable: equal values stay in the order of their ids
    return Ranking(ids, order, mx.take_along_axis(found, order, axis=-1), count >= size)


def largest_in_order(numbers: Array, count: int) -> tuple[Array, Array]:
    """Ids and values [..., count] of the largest of [..., V], descending, equal ones by ascending id."""
    ranking = rank(numbers, min(count, numbers.shape[-1]))
    return mx.take_along_axis(ranking.ids, ranking.order, axis=-1), ranking.values


def _find(numbers: Array, count: int) -> Array:
    """Ids int32 [..., count] of the largest, in no order.

    A large vocabulary is laid out in STRIPS rows; the `count` columns with the largest heads are found first, in the
    same way. Those heads alone are at least as large as anything in other columns: the largest of the chosen columns
    are the largest of all. That is several times cheaper than a partition of everything.
    """
    size = numbers.shape[-1]
    if size % STRIPS or size < 2 * STRIPS * count:
        return mx.argpartition(-numbers, kth=count - 1, axis=-1)[..., :count].astype(mx.int32)
    columns = size // STRIPS
    chosen = _find(mx.max(mx.unflatten(numbers, -1, (STRIPS, columns)), axis=-2), count)
    begins = mx.arange(0, size, columns, dtype=mx.int32)[:, None]
    ids = mx.flatten(chosen[..., None, :] + begins, -2, -1)
    places = _find(mx.take_along_axis(numbers, ids, axis=-1), count)
    return mx.take_along_axis(ids, places, axis=-1)
