"""Matrices stored as FP8 bytes with scales of their blocks, made ones that compute. Knows no family and no head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mtplxd.platform.mlx import Array, mx

_SUFFIX = "_scale_inv"
_BLOCK = [128, 128]
_PACKED_BLOCK = [32, 32]
"""Blocks of this size with scales that are powers of two are a packing MLX computes with."""


def unpack_fp8(tensors: Mapping[str, Array], config: Mapping[str, Any]) -> dict[str, Array]:
    """With every FP8 matrix [..., R, C] that has block scales made bfloat16, as mlx-lm does where it knows how.

    A checkpoint that mlx-lm keeps packed is left as it is.
    """
    stated = config.get("quantization_config") or {}
    block = stated.get("weight_block_size") or _BLOCK
    if stated.get("scale_fmt") == "ue8m0" and list(block) == _PACKED_BLOCK:
        return dict(tensors)
    found = dict(tensors)
    for name in tensors:
        base = name.removesuffix(_SUFFIX)
        if base != name and base in tensors and tensors[base].dtype == mx.uint8:
            found[base] = scaled(tensors[base], found.pop(name), block).astype(mx.bfloat16)
    return found


def scaled(weight: Array, scale: Array, block: Sequence[int]) -> Array:
    """FP8 bytes [..., R, C] and scales [..., ⌈R/block⌉, ⌈C/block⌉] to float32 [..., R, C].

    Scales that are bytes too are E8M0, powers of two.
    """
    if scale.dtype == mx.uint8:
        scale = mx.power(2.0, scale.astype(mx.float32) - 127)
    rows, columns = weight.shape[-2:]
    wide = mx.repeat(scale.astype(mx.float32), block[0], axis=-2)[..., :rows, :]
    wide = mx.repeat(wide, block[1], axis=-1)[..., :columns]
    return mx.from_fp8(weight, dtype=mx.float32) * wide
