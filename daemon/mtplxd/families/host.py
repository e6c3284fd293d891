"""Arrays as numpy sees them where they lie, and back: bfloat16, which numpy lacks, as the 16 bits it is made of.

Knows nothing of what the numbers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mtplxd.platform.mlx import Array, mx


def on_host(array: Array) -> Any:
    """The numbers of an evaluated array, which must outlive them: nothing is copied."""
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array, copy=False)


def from_host(numbers: Any, dtype: Any) -> Array:
    """A fresh array of that dtype with these numbers."""
    made = mx.array(numbers)
    return made.view(dtype) if dtype == mx.bfloat16 else made


class Room:
    """An array to be, [B, heads, slots, dim], filled part by part where it lies; where nothing was put, it is zero."""

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self._array = mx.zeros(tuple(shape), dtype)
        mx.eval(self._array)
        self._numbers = on_host(self._array)

    def put(self, part: Array, begin: int) -> None:
        """Copies an evaluated part [B, heads, n, dim] into the slots from `begin` on. Raises ValueError where it does
        not fit, has numbers of another kind, or the array is given away."""
        if part.dtype != self._array.dtype:
            raise ValueError(f"{part.dtype} among {self._array.dtype}")
        self._numbers[:, :, begin : begin + part.shape[2]] = on_host(part)

    def array(self) -> Array:
        """All of it, given away: nothing can be put there any more."""
        self._numbers = self._numbers[:, :, :0]
        return self._array
