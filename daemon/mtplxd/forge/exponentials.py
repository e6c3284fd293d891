"""Sums of exponentials over wide rows, forwards and backwards, on whichever side is sooner done.

MLX's CPU backend takes 29 ns for an exponential where numpy's takes 6 (Emerald Rapids, one core); over a draft
vocabulary that was half of an update.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mtplxd.platform.mlx import Array, launches_compute, mx


def logsumexp(values: Array) -> Array:
    """Of each row of [..., D] float32, [..., 1]; its gradient is the row's softmax."""
    if not launches_compute():
        return mx.logsumexp(values, axis=-1, keepdims=True)
    return _logsumexp_by_numpy(values)


@mx.custom_function  # type: ignore[untyped-decorator]
def _logsumexp_by_numpy(values: Array) -> Array:
    rows = np.asarray(values)
    largest = rows.max(axis=-1, keepdims=True)
    shifted = rows - largest
    np.exp(shifted, out=shifted)
    return mx.array(np.log(shifted.sum(axis=-1, keepdims=True)) + largest)


@_logsumexp_by_numpy.vjp  # type: ignore[untyped-decorator]
def _softmax_by_numpy(values: Array, cotangent: Array, total: Array) -> Any:
    shares = np.asarray(values) - np.asarray(total)
    np.exp(shares, out=shares)
    shares *= np.asarray(cotangent)
    return mx.array(shares)
