"""Sums of exponentials over a vocabulary. One job: MLX's CPU backend calls e^x once an element, this does not.

On 49k float32 numbers its `exp` takes 0.65 ms, the same by arithmetic that vectorises 0.2, with the same error
(2e-6 at the far end, where terms weigh nothing; 1e-7 near 0). Other backends and dtypes use MLX's own.
"""

from __future__ import annotations

from mtplxd.platform.mlx import Array, mx

LARGE = 1 << 15
_LOG2_E = 1.4426950408889634
_LEAST = -126.0
"""2 to this is the smallest normal number; smaller terms become it and are lost in any sum that holds a 1."""
_POWER_OF_TWO = (
    0.001326697039,
    0.009675459746,
    0.05550742616,
    0.2402212175,
    0.6931469492,
    1.000000071,
)
"""2^f on [−1/2, 1/2], highest power first, relative error below 1e-7."""


def sum_exponentials(values: Array, largest: Array) -> Array:
    """Σ e^(value − largest) over the last axis [..., V], kept as [..., 1]; `largest` [..., 1] is its maximum."""
    below = values - largest
    return mx.sum(_exp_negative(below) if _pays(values) else mx.exp(below), axis=-1, keepdims=True)


def _pays(values: Array) -> bool:
    """Twenty operations beat one only on a large vocabulary."""
    large = values.shape[-1] >= LARGE
    return bool(large and values.dtype == mx.float32 and mx.default_device().type == mx.DeviceType.cpu)


def _exp_negative(x: Array) -> Array:
    """e^x for float32 x ≤ 0: 2^n · 2^f, n whole, the first by setting the exponent's bits."""
    power = mx.maximum(x * _LOG2_E, _LEAST)
    whole = mx.round(power)
    rest = power - whole
    series = rest * _POWER_OF_TWO[0] + _POWER_OF_TWO[1]
    for factor in _POWER_OF_TWO[2:]:
        series = series * rest + factor
    scale = ((whole + 127.0) * 8388608.0).astype(mx.int32).view(mx.float32)
    return series * scale
