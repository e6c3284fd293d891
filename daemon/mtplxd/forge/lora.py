"""Low-rank additions to the linears of a head (LoRA, arXiv 2106.09685), and folding them into the weights.

Only matrices that are plain linears, packed or not, are added to; stacked experts stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mtplxd.platform.mlx import Array, mx, nn, tree

LEFT_OUT = ("output",)
"""A head's own output matrix has a row for each token: too much of it is never seen in training."""


class LowRank(nn.Module):  # type: ignore[misc]
    """A linear and what is added to it: y = linear(x) + scale · (x A) B, B zero at first."""

    def __init__(self, linear: Any, width: int, height: int, rank: int, scale: float, key: Array) -> None:
        super().__init__()
        self.linear = linear
        bound = 1 / math.sqrt(width)
        self.lora_a = mx.random.uniform(-bound, bound, (width, rank), key=key)
        self.lora_b = mx.zeros((rank, height))
        self._scale = scale

    def __call__(self, x: Array) -> Array:
        """x [..., width] to y [..., height]."""
        return self.linear(x) + (self._scale * ((x @ self.lora_a) @ self.lora_b)).astype(x.dtype)

    def folded(self) -> Array:
        """The weight [height, width] of one linear that does the same, float32."""
        return weight_of(self.linear) + self._scale * (self.lora_a @ self.lora_b).T


def add_low_rank(module: Any, rank: int, scale: float, seed: int) -> None:
    """Puts additions on every linear below a frozen module; they alone are trainable afterwards."""
    keys = iter(mx.random.split(mx.random.key(seed), 1 + sum(1 for _ in _linears(module))))
    replaced = [
        (path, LowRank(linear, *_sizes(linear), rank, scale, next(keys))) for path, linear in _linears(module)
    ]
    module.update_modules(tree.tree_unflatten(replaced))
    module.freeze()
    for _, low in low_ranks(module):
        low.unfreeze(recurse=False, keys=["lora_a", "lora_b"])


def low_ranks(module: Any) -> Iterator[tuple[str, LowRank]]:
    """The additions below a module, by the path of the linear they stand for."""
    return ((path, part) for path, part in module.named_modules() if isinstance(part, LowRank))


def weight_of(linear: Any) -> Array:
    """A linear's weight [height, width] in float32, unpacked where it is packed."""
    if "scales" not in linear:
        return linear.weight.astype(mx.float32)
    sizes = {"group_size": linear.group_size, "bits": linear.bits, "mode": linear.mode}
    unpacked = mx.dequantize(linear.weight, linear.scales, linear.get("biases"), **sizes)
    return unpacked.astype(mx.float32)


def _linears(module: Any) -> list[tuple[str, Any]]:
    found = [
        (path, part)
        for path, part in module.named_modules()
        if isinstance(part, (nn.Linear, nn.QuantizedLinear)) and path.rsplit(".", 1)[-1] not in LEFT_OUT
    ]
    return sorted(found, key=lambda one: one[0])


def _sizes(linear: Any) -> tuple[int, int]:
    height, width = linear.weight.shape
    return (width * 32 // linear.bits if "scales" in linear else width), height
