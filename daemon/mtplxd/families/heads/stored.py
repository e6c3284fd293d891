"""Turns head tensors as published into those of mlx-lm's classes: FP8 blocks, latent halves, experts, fused matrices.

Everything here stays lazy: nothing is read from disk before the module takes it. What must be there is `bind`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.families.fp8 import scaled
from mtplxd.families.heads.row import Weights
from mtplxd.platform.mlx import Array, mx

BLOCK = (128, 128)
_SCALE = re.compile(r"(?:_scale_inv|\.scale)$")
_PARTS = ("weight", "scales", "biases")


def dequantise_fp8(tensors: Mapping[str, Array], block: tuple[int, int] = BLOCK) -> dict[str, Array]:
    """With every FP8 matrix and its block scales made one float32 matrix.

    MLX reads FP8 as bytes. Raises FailedPrecondition for such a matrix without scales; scales without a matrix stay,
    so that binding names them.
    """
    scales = {_SCALE.sub("", name).removesuffix(".weight"): name for name in tensors if _SCALE.search(name)}
    found = dict(tensors)
    for name, array in tensors.items():
        if array.dtype != mx.uint8 or _SCALE.search(name):
            continue
        scale = scales.get(name.removesuffix(".weight"))
        if scale is None:
            raise FailedPrecondition("an FP8 tensor of the head has no scales", name, "pull the pack again")
        found[name] = scaled(array, found.pop(scale), block)
    return found


def split_latent(weights: Weights, args: Any) -> Weights:
    """`kv_b_proj` [n·(d + v), r] into `embed_q` [n, r, d] and `unembed_out` [n, v, r]; what is split already stays.

    Packed by MLX, it is unpacked: its halves cannot be taken from packed columns.
    """
    prefix = "block.self_attn."
    if f"{prefix}kv_b_proj.weight" not in weights:
        return weights
    found = dict(weights)
    parts = [found.pop(f"{prefix}kv_b_proj.{part}", None) for part in _PARTS]
    matrix = _unpacked(*parts, width=args.kv_lora_rank)
    matrix = matrix.reshape(args.num_attention_heads, args.qk_nope_head_dim + args.v_head_dim, -1)
    keys, values = matrix[:, : args.qk_nope_head_dim], matrix[:, args.qk_nope_head_dim :]
    found[f"{prefix}embed_q.weight"] = mx.contiguous(keys.swapaxes(-1, -2))
    found[f"{prefix}unembed_out.weight"] = mx.contiguous(values)
    return found


def _unpacked(weight: Any, scales: Any, biases: Any, *, width: int) -> Array:
    if scales is None:
        return weight
    bits, group = packing(weight, scales, width)
    scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
    return mx.dequantize(weight, scales, biases, group_size=group, bits=bits)


def packing(weight: Array, scales: Array, width: int) -> tuple[int, int]:
    """Bits and group size of a matrix whose rows are `width` long unpacked."""
    return weight.shape[-1] * 32 // width, width // scales.shape[-1]


def stack_experts(weights: Weights, names: Mapping[str, str], home: str = "block.mlp.") -> Weights:
    """`experts.{e}.NAME.*` into one array an expert layer, under `switch_mlp`; `names` maps the published names.

    A hole in the numbers leaves those after it, so that binding names them.
    """
    found = dict(weights)
    for published, ours in names.items():
        for part in _PARTS:
            stack, expert = [], 0
            while (name := f"{home}experts.{expert}.{published}.{part}") in found:
                stack.append(found.pop(name))
                expert += 1
            if stack:
                found[f"{home}switch_mlp.{ours}.{part}"] = mx.stack(stack)
    return found


GATED = {"gate_proj": "gate_proj", "up_proj": "up_proj", "down_proj": "down_proj"}


def stack_gated(weights: Weights, _args: Any) -> Weights:
    """The experts of a gated MLP, numbered or fused as `gate_up_proj` [E, 2·I, H] and `down_proj` [E, H, I]."""
    return _unfuse(stack_experts(weights, GATED))


def _unfuse(weights: Weights, home: str = "block.mlp.") -> Weights:
    """The gate's rows come first, the up projection's after them; packing along columns leaves rows whole."""
    found = dict(weights)
    for part in _PARTS:
        ends = ("", ".weight") if part == "weight" else (f".{part}",)
        for end in ends:
            if (both := found.pop(f"{home}experts.gate_up_proj{end}", None)) is not None:
                gate, up = mx.split(both, 2, axis=1)
                found[f"{home}switch_mlp.gate_proj.{part}"] = mx.contiguous(gate)
                found[f"{home}switch_mlp.up_proj.{part}"] = mx.contiguous(up)
            if (down := found.pop(f"{home}experts.down_proj{end}", None)) is not None:
                found[f"{home}switch_mlp.down_proj.{part}"] = down
    return found
