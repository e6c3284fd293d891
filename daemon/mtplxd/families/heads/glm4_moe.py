"""GLM-4.5, 4.5-Air and 4.6: one grouped-query block with experts."""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import RowCache
from mtplxd.families.heads.appended import APPENDED
from mtplxd.families.heads.row import HeadFamily, causal_mask
from mtplxd.families.heads.stored import stack_gated


def _block(args: Any, j: int) -> Any:
    from mlx_lm.models.glm4_moe import DecoderLayer

    return DecoderLayer(args, args.num_hidden_layers + j)


FAMILY = HeadFamily(
    name="glm4_moe",
    types=frozenset({"glm4_moe"}),
    scheme="grouped",
    keys=APPENDED,
    block=_block,
    cache=lambda _args, _j, rows: RowCache(rows),
    mask=causal_mask,
    convert=(stack_gated,),
)
