"""A reduced draft vocabulary as the round needs it: ids, and where in it an id stands. Decides nothing."""

from __future__ import annotations

import numpy as np

from mtplxd.platform.mlx import Array, mx


class DraftVocab:
    """D ids of a vocabulary of V that a head's logits are for, on the device and on the host."""

    def __init__(self, ids: Array, size: int) -> None:
        self.ids = ids
        self.host_ids: np.ndarray = np.array(ids)
        self.host_index = np.full(size, -1, np.int32)
        """Place of each id [V], −1 outside."""
        self.host_index[self.host_ids] = np.arange(len(self.host_ids), dtype=np.int32)
        self.index = mx.array(self.host_index)

    def pick(self, laws: Array, ids: Array) -> Array:
        """What laws [..., D] over this vocabulary have at ids [..., c] of the whole one; 0 outside."""
        places = self.index[ids]
        found = mx.take_along_axis(laws, mx.maximum(places, 0), axis=-1)
        return mx.where(places >= 0, found, mx.zeros_like(found))
