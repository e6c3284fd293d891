"""MiMo-V2-Flash: three dense sliding-window blocks, each fed with the target's hidden and one token further on."""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import WindowCache
from mtplxd.families.heads.row import HeadFamily, Weights, causal_mask, placed
from mtplxd.platform.mlx import mx

_PARTS = {
    "enorm.": "enorm.",
    "hnorm.": "hnorm.",
    "eh_proj.": "fc.",
    "final_layernorm.": "norm.",
    "pre_mlp_layernorm.": "block.post_attention_layernorm.",
}


def _block(args: Any, _j: int) -> Any:
    from mlx_lm.models.mimo_v2_flash import DecoderLayer

    return DecoderLayer(args, is_moe=False, is_sliding_window=True)


def _split_fused(weights: Weights, args: Any) -> Weights:
    """`qkv_proj`, as some releases store it, into its three; its rows are whole, packed or not."""
    queries = args.swa_num_attention_heads * args.swa_head_dim
    keys = args.swa_num_key_value_heads * args.swa_head_dim
    found = dict(weights)
    for part in ("weight", "scales", "biases"):
        fused = found.pop(f"block.self_attn.qkv_proj.{part}", None)
        if fused is not None:
            parts = mx.split(fused, [queries, queries + keys], axis=0)
            for name, rows in zip(("q_proj", "k_proj", "v_proj"), parts, strict=True):
                found[f"block.self_attn.{name}.{part}"] = mx.contiguous(rows)
    return found


FAMILY = HeadFamily(
    name="mimo_v2_flash",
    types=frozenset({"mimo_v2_flash"}),
    scheme="mimo_v2",
    keys=placed(r"mtp\.layers\.(\d+)\.", _PARTS),
    block=_block,
    cache=lambda args, _j, rows: WindowCache(rows, args.sliding_window_size),
    mask=causal_mask,
    convert=(_split_fused,),
    eps="layernorm_epsilon",
    chained="target",
)
