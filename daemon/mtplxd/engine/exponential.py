"""Exponentials and sums over a vocabulary. One job: MLX's CPU backend calls e^x once an element and adds one after the
other; this does neither.

On 49k float32 numbers its `exp` takes 0.6 ms, the same by arithmetic that vectorises 0.15; a sum 0.05 and 0.02. Other
backends and dtypes use MLX's own exponentials.
"""

from __future__ import annotations

from mtplxd.platform.mlx import Array, mx

LARGE = 1 << 13
STRIPS = 64
"""Rows that a large vocabulary is laid out in to be added up, which vectorises across them."""
_LOG2_E = 1.4426950408889634
_LEAST = -127.0
"""Written into an exponent's bits it is 0: what is masked weighs nothing, as do terms below the normal numbers."""
_WHOLE = 12582912.0 + 127.0
"""Added to a number it leaves that rounded to a whole one in the last bits, as the exponent of a float is written."""
_LEADING = 0.0008666968487501732
_CUBIC = (17.332409728395227, 199.93951294575214, 1 / _LEADING)
"""2^(f/4) on [−1/2, 1/2] is _LEADING times ((f + c0) f + c1) f + c2, within 4.1e-7 of itself, and exact at 0."""
_FACTOR = _LEADING**4


def exponentials(values: Array, largest: Array, temperature: float | Array = 1.0) -> Array:
    """Weights in proportion to e^(value / temperature), of one shape with `values` [..., V], finite and none all 0.

    `largest` [..., 1] is the maximum over the last axis; weights of a position are right up to one common factor, in
    float32 within 2e-6 of each.
    """
    if _pays(values):
        return _raise(values, largest, temperature)
    return mx.exp((values - largest) / temperature)


def sum_exponentials(values: Array, largest: Array, temperature: float | Array = 1.0) -> Array:
    """Σ e^((value − largest) / temperature) over the last axis [..., V], kept as [..., 1]; `largest` its maximum."""
    summed = add_up(exponentials(values, largest, temperature))
    return summed * _FACTOR if _pays(values) else summed


def add_up(values: Array) -> Array:
    """Sums over the last axis [..., V], kept as [..., 1]."""
    size = values.shape[-1]
    if size >= LARGE and size % STRIPS == 0:
        values = mx.sum(mx.unflatten(values, -1, (STRIPS, size // STRIPS)), axis=-2)
    return mx.sum(values, axis=-1, keepdims=True)


def _pays(values: Array) -> bool:
    """Sixteen operations beat one only on a large vocabulary."""
    large = values.shape[-1] >= LARGE
    return bool(large and values.dtype == mx.float32 and mx.default_device().type == mx.DeviceType.cpu)


def _raise(values: Array, largest: Array, temperature: float | Array) -> Array:
    """e^x / _FACTOR for float32 x ≤ 0 as 2^n · (2^(f/4))^4, n whole and written into the exponent's bits."""
    scale = _LOG2_E / mx.array(temperature, mx.float32)  # rounded alike for one and for many temperatures
    power = mx.maximum((values - largest) * scale, _LEAST)
    shifted = power + _WHOLE
    rest = power - (shifted - _WHOLE)
    series = rest + _CUBIC[0]
    for term in _CUBIC[1:]:
        series = series * rest + term
    power_of_two = mx.left_shift(shifted.view(mx.int32), 23).view(mx.float32)
    return mx.square(mx.square(series)) * power_of_two
