"""Which convention a head's norm weights are stored in: as they multiply, or around 0 with a 1 to be added.

Decided once, from the values; what follows from it is `bind`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from mtplxd.errors import FailedPrecondition
from mtplxd.platform.mlx import Array, mx

_NEAR = 0.3
"""How far from 0, or from 1, the middle of all means may lie to be clear on its own."""


def is_norm(path: str, array: Array) -> bool:
    """Whether a tensor is the weight of an RMS norm; the sparse indexer's `k_norm` is a layer norm, stored as it is."""
    name = path.removesuffix(".weight").rsplit(".", 1)[-1]
    return path.endswith(".weight") and array.ndim == 1 and "norm" in name and ".indexer." not in path


def decide_convention(norms: Iterable[Array], of_body: str | None) -> str:
    """`zero_centred` where the norms' means lie around 0, `as_stored` where they lie around 1.

    `of_body` is the convention of the body's own stored norms where that is known; it decides what the values leave
    open. Raises FailedPrecondition where nothing does.
    """
    means = [float(mx.mean(norm.astype(mx.float32)).item()) for norm in norms]
    middle = median(means)
    if abs(middle) < _NEAR:
        return "zero_centred"
    if abs(middle - 1) < _NEAR:
        return "as_stored"
    if of_body is None:
        raise FailedPrecondition(
            "cannot tell how the head's norms are stored",
            f"their mean is {middle:.2f}",
            "state norm_convention in the pack's mtplx_runtime.json",
        )
    return of_body


def convention_of_body(pairs: Iterable[tuple[Array, Array]]) -> str | None:
    """How the body's norms are stored, from some of them as stored and as loaded; None without any."""
    offsets = [
        float(mx.mean(loaded.astype(mx.float32) - stored.astype(mx.float32)).item())
        for stored, loaded in pairs
    ]
    if not offsets:
        return None
    return "zero_centred" if median(offsets) > 1 / 2 else "as_stored"
