"""Tries the absorbed forward against mlx-lm's own on a small input. Decides nothing about what follows."""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import PairCache, RowCache
from mtplxd.families.latent.algebra import causal_mask
from mtplxd.families.latent.forms import Form
from mtplxd.families.latent.forward import attend_absorbed
from mtplxd.platform.mlx import Array, mx

WARM, LENGTH = 5, 3
"""Positions in the cache, and positions of the forward that is compared."""
HIDING, GATHERING = 4, 2
"""Slots an indexer may choose: with the first the others are hidden, with the second the chosen are gathered."""
TOLERANCE, COARSE_TOLERANCE = 1e-4, 0.05
"""Allowed difference, of the largest value: in float32, and in half precision, whose own rounding is a few percent."""


def find_difference(attention: Any, form: Form) -> str | None:
    """What is wrong with the absorbed forward of this instance, None where it gives what its class gives."""
    try:
        if form.sparse:
            difference = max(_compare_narrowed(attention, form, kept) for kept in (HIDING, GATHERING))
        else:
            difference = 0.0
        difference = max(difference, _compare(attention, form))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # another mlx-lm may name or shape things anew
        return f"cannot be absorbed ({type(error).__name__})"
    dtype = attention.kv_a_layernorm.weight.dtype
    allowed = TOLERANCE if dtype == mx.float32 else COARSE_TOLERANCE
    return None if difference <= allowed else f"differs by {difference:.1e} when absorbed"


def _compare_narrowed(attention: Any, form: Form, kept: int) -> float:
    """With an indexer that acts on so few slots already."""
    indexer = attention.indexer
    published = indexer.index_topk
    indexer.index_topk = kept
    try:
        return _compare(attention, form)
    finally:
        indexer.index_topk = published


def _compare(attention: Any, form: Form) -> float:
    """Largest difference of the two forwards behind the same cache, of the largest value; NaN counts as infinite."""
    hidden = getattr(attention, form.output).weight.shape[0]
    dtype = attention.kv_a_layernorm.weight.dtype
    x = mx.random.normal((1, WARM + LENGTH, hidden), key=mx.random.key(1)).astype(dtype)
    factor = mx.linspace(1.0, 1.5, WARM + LENGTH)[:, None].astype(dtype)
    cache = PairCache(RowCache(), RowCache()) if form.sparse else RowCache()

    def extra(begin: int, end: int) -> tuple[Array, ...]:
        return (factor[begin:end],) if form.query_factor else ()

    attention(x[:, :WARM], *extra(0, WARM), causal_mask(WARM, WARM), cache)
    mask, asked = causal_mask(LENGTH, WARM + LENGTH), x[:, WARM:]
    wanted = attention(asked, *extra(WARM, WARM + LENGTH), mask, cache)
    mx.eval(wanted)
    cache.roll_back([WARM])
    found = attend_absorbed(attention, form, asked, mask, cache, *extra(WARM, WARM + LENGTH))
    difference = (mx.abs(found - wanted).max() / mx.abs(wanted).max()).item()
    return float(difference) if difference == difference else float("inf")
