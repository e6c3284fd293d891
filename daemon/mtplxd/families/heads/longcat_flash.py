"""LongCat-Flash: latent attention and a dense MLP under `model.mtp.*`, with a token embedding of its own."""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import RowCache
from mtplxd.families.heads.row import HeadFamily, array_mask, placed
from mtplxd.families.heads.stored import split_latent
from mtplxd.platform.mlx import Array, nn

PARTS = {
    "embed_tokens.": "embed_tokens.",
    "norm.": "norm.",
    "eh_proj.": "fc.",
    "enorm.m.": "enorm.",
    "hnorm.m.": "hnorm.",
    "transformer_layer.": "block.",
}


class LongcatBlock(nn.Module):  # type: ignore[misc]
    """One attention and one MLP; a block of the body has two of each, and experts beside them."""

    def __init__(self, args: Any) -> None:
        from mlx_lm.models.longcat_flash import LongcatFlashMLA, LongcatFlashMLP

        super().__init__()
        self.self_attn = LongcatFlashMLA(args)
        self.mlp = LongcatFlashMLP(args)
        self.input_layernorm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(args.hidden_size, eps=args.rms_norm_eps)

    def __call__(self, x: Array, mask: Any, cache: Any) -> Array:
        """x [B, L, H] to y [B, L, H]; extends the cache by L."""
        x = x + self.self_attn(self.input_layernorm(x), mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


FAMILY = HeadFamily(
    name="longcat_flash",
    types=frozenset({"longcat_flash"}),
    scheme="longcat",
    keys=placed(r"mtp\.(?:layers\.(\d+)\.)?", PARTS),
    block=lambda args, _j: LongcatBlock(args),
    cache=lambda _args, _j, rows: RowCache(rows),
    mask=array_mask,
    convert=(split_latent,),
    embedding="own",
)
