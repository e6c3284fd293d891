"""Turns tensors as stored into weights in memory, one at a time, so that the peak stays one tensor above the model."""

from __future__ import annotations

from collections.abc import Callable

from mtplxd.errors import Cancelled
from mtplxd.platform.mlx import Array, compute_dtype, mx

OnProgress = Callable[[int, int], None]
"""Takes tensors done and tensors in all."""


class Settler:
    """Casts to the compute dtype and evaluates; counts, and stops where the load was cancelled."""

    def __init__(self, total: int, progress: OnProgress | None, cancelled: Callable[[], bool] | None) -> None:
        self._done, self._total = 0, total
        self._progress, self._cancelled = progress, cancelled
        self._dtype = compute_dtype()

    def expect(self, count: int) -> None:
        """Says that `count` more are to come, where what was stored is fewer tensors in memory."""
        self._total = self._done + count

    def settle(self, array: Array) -> Array:
        """The array in memory, floats in the compute dtype. Raises Cancelled."""
        if self._cancelled and self._cancelled():
            raise Cancelled("loading was cancelled")
        if self._dtype is not None and mx.issubdtype(array.dtype, mx.floating):
            array = array.astype(self._dtype)
        mx.eval(array)
        self._done += 1
        if self._progress:
            self._progress(self._done, self._total)
        return array
