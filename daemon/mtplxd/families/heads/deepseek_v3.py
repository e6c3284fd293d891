"""DeepSeek-V3, R1, V3-0324 and V3.1: one latent-attention block with experts.

The released weights join [embedding; hidden], the paper writes it the other way round.
"""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import RowCache
from mtplxd.families.heads.appended import APPENDED
from mtplxd.families.heads.row import HeadFamily, array_mask
from mtplxd.families.heads.stored import split_latent, stack_gated


def _block(args: Any, j: int) -> Any:
    from mlx_lm.models.deepseek_v3 import DeepseekV3DecoderLayer

    return DeepseekV3DecoderLayer(args, args.num_hidden_layers + j)


FAMILY = HeadFamily(
    name="deepseek_v3",
    types=frozenset({"deepseek_v3", "kimi_k2", "joyai_llm_flash"}),
    scheme="latent",
    keys=APPENDED,
    block=_block,
    cache=lambda _args, _j, rows: RowCache(rows),
    mask=array_mask,
    convert=(split_latent, stack_gated),
)
