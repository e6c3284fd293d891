"""GLM-4.7-Flash: one latent-attention block with experts, appended after the body's layers."""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import RowCache
from mtplxd.families.heads.row import HeadFamily, array_mask, placed
from mtplxd.families.heads.stored import split_latent, stack_gated

SHARED_HEAD = {
    "enorm.": "enorm.",
    "hnorm.": "hnorm.",
    "eh_proj.": "fc.",
    "shared_head.norm.": "norm.",
    "shared_head.head.": "output.",
    "embed_tokens.": "embed_tokens.",
}
"""The names of the DeepSeek and GLM heads around their block."""


def _block(args: Any, j: int) -> Any:
    from mlx_lm.models.glm4_moe_lite import Glm4MoeLiteDecoderLayer

    return Glm4MoeLiteDecoderLayer(args, args.num_hidden_layers + j)


FAMILY = HeadFamily(
    name="glm4_moe_lite",
    types=frozenset({"glm4_moe_lite"}),
    scheme="latent",
    keys=placed(r"layers\.(\d+)\.", SHARED_HEAD, appended=True),
    block=_block,
    cache=lambda _args, _j, rows: RowCache(rows),
    mask=array_mask,
    convert=(split_latent, stack_gated),
)
