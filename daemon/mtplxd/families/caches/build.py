"""Maps the caches that mlx-lm makes for a model to ours, class by class; refuses by name a class it does not know."""

from __future__ import annotations

from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.families.caches.row import RowCache
from mtplxd.families.protocols import LayerCache


def make_caches(model: Any, rows: int) -> list[LayerCache]:
    """Empty caches for `rows` rows, in the places of those that mlx-lm makes for this model.

    Raises FailedPrecondition naming a class of cache that has no counterpart here.
    """
    from mlx_lm.models.cache import make_prompt_cache

    return [_counterpart(stock, rows) for stock in make_prompt_cache(model)]


def _counterpart(stock: Any, rows: int) -> LayerCache:
    name = type(stock).__name__
    if name == "KVCache":
        return RowCache(rows)
    raise FailedPrecondition("this body keeps a kind of cache that cannot go back", name, "see `mtplx ls`")
