"""Laws of the engine as numbers of every id, and laws given whole as rules compare them."""

from __future__ import annotations

from typing import Any

import numpy as np
from mtplxd.engine.acceptance import Laws
from mtplxd.engine.sampling import Law, scatter
from mtplxd.platform.mlx import Array, mx


def masses(law: Law, size: int) -> np.ndarray:
    """The masses of all ids, [..., size]."""
    return np.array(scatter(law.p, law.ids, size))


def whole(p: Any, q: Any, drafts: Any) -> Laws:
    """Laws p [B, k+1, V] and q [B, k, V] over the whole vocabulary, and what they have at the drafts [B, k]."""
    p, q, places = mx.array(p), mx.array(q), mx.array(drafts)[..., None]
    count = q.shape[1]
    at = (mx.take_along_axis(laws, places, axis=-1)[..., 0] for laws in (p[:, :count], q))
    return Laws(p, q, *at)


def only(weights: Any, dtype: Any = None) -> Law:
    """Laws [B] given by weights [B, V]."""
    weights = mx.array(weights) if dtype is None else mx.array(weights, dtype)
    return Law(weights, None, mx.ones(weights.shape[:-1], mx.bool_))


def at_places(laws: Laws, ids: Array) -> Laws:
    """The same over some ids [B, k+1, c] alone, which must hold all that p has mass on."""
    count = laws.q.shape[1]
    return laws._replace(
        p=mx.take_along_axis(laws.p, ids, axis=-1), q=mx.take_along_axis(laws.q, ids[:, :count], axis=-1)
    )
