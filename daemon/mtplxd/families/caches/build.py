"""Maps the caches that mlx-lm makes for a model to ours, class by class; refuses by name a class it does not know."""

from __future__ import annotations

from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.families.caches.pair import PairCache
from mtplxd.families.caches.row import RowCache
from mtplxd.families.caches.state import StateCache
from mtplxd.families.caches.window import WindowCache
from mtplxd.families.protocols import LayerCache


def make_caches(model: Any, rows: int) -> list[LayerCache]:
    """Empty caches for `rows` rows, in the places of those that mlx-lm makes for this model.

    Raises FailedPrecondition naming a class of cache that has no counterpart here.
    """
    from mlx_lm.models.cache import make_prompt_cache

    return [counterpart(stock, rows) for stock in make_prompt_cache(model)]


def counterpart(stock: Any, rows: int) -> LayerCache:
    """Our empty cache of the kind of one of mlx-lm's. Raises FailedPrecondition for a kind that cannot go back."""
    from mlx_lm.models import cache as theirs

    kind = type(stock)
    if kind is theirs.KVCache:
        return RowCache(rows)
    if kind is theirs.RotatingKVCache and stock.keep == 0:
        return WindowCache(rows, stock.max_size)
    if kind is theirs.ArraysCache:
        return StateCache(rows, len(stock.cache))
    if kind is theirs.CacheList:
        return PairCache(*(counterpart(one, rows) for one in stock.caches))
    raise FailedPrecondition(
        "this body keeps a cache that cannot go back", kind.__name__, "use another model"
    )
