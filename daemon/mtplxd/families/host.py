"""Arrays as numpy sees them where they lie, and back: bfloat16, which numpy lacks, as the 16 bits it is made of.

Numbers that came from elsewhere may stay where they lie, as a `HostArray`, until an array is made of them.

Knows nothing of what the numbers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtplxd.platform.mlx import Array, mx


@dataclass(frozen=True, slots=True, eq=False)
class HostArray:
    """Numbers on the host that nobody writes to, as numpy has them, and the dtype of the array they would be."""

    numbers: Any
    dtype: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """As the array's."""
        return tuple(self.numbers.shape)

    @property
    def nbytes(self) -> int:
        """As the array's."""
        return int(self.numbers.nbytes)


def on_host(array: Array | HostArray) -> Any:
    """The numbers of an evaluated array, which must outlive them: nothing is copied."""
    if isinstance(array, HostArray):
        return array.numbers
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array, copy=False)


def on_device(array: Array | HostArray) -> Array:
    """The array itself, or a fresh one with the numbers."""
    return from_host(array.numbers, array.dtype) if isinstance(array, HostArray) else array


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

    def put(self, part: Array | HostArray, begin: int) -> None:
        """Copies an evaluated part [B, heads, n, dim] into the slots from `begin` on. Raises ValueError where it does
        not fit, has numbers of another kind, or the array is given away."""
        if part.dtype != self._array.dtype:
            raise ValueError(f"{part.dtype} among {self._array.dtype}")
        self._numbers[:, :, begin : begin + part.shape[2]] = on_host(part)

    def array(self) -> Array:
        """All of it, given away: nothing can be put there any more."""
        self._numbers = self._numbers[:, :, :0]
        return self._array
