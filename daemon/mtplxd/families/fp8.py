"""Matrices stored as FP8 bytes with scales of their blocks, made ones that compute. Knows no family and no head."""

from __future__ import annotations

from collections.abc import Mapping
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
            found[base] = _scaled(tensors[base], found.pop(name), block)
    return found


def _scaled(weight: Array, scale: Array, block: list[int]) -> Array:
    rows, columns = weight.shape[-2:]
    wide = mx.repeat(scale, block[0], axis=-2)[..., :rows, :]
    wide = mx.repeat(wide, block[1], axis=-1)[..., :columns]
    return (mx.from_fp8(weight, dtype=mx.bfloat16) * wide).astype(mx.bfloat16)
