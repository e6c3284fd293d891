"""GLM-4.7-Flash: one latent-attention block with experts."""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import RowCache
from mtplxd.families.heads.appended import APPENDED
from mtplxd.families.heads.row import HeadFamily, array_mask
from mtplxd.families.heads.stored import split_latent, stack_gated


def _block(args: Any, j: int) -> Any:
    from mlx_lm.models.glm4_moe_lite import Glm4MoeLiteDecoderLayer

    return Glm4MoeLiteDecoderLayer(args, args.num_hidden_layers + j)


FAMILY = HeadFamily(
    name="glm4_moe_lite",
    types=frozenset({"glm4_moe_lite"}),
    scheme="latent",
    keys=APPENDED,
    block=_block,
    cache=lambda _args, _j, rows: RowCache(rows),
    mask=array_mask,
    convert=(split_latent, stack_gated),
)
