"""DeepSeek-V3.2: one latent-attention block with experts and an indexer of its own, which caches keys of its own."""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import PairCache, RowCache
from mtplxd.families.heads.appended import APPENDED
from mtplxd.families.heads.row import HeadFamily, first_array_mask
from mtplxd.families.heads.stored import split_latent, stack_gated


def sparse_block(args: Any, j: int) -> Any:
    """The block of DeepSeek's and GLM's sparse attention."""
    from mlx_lm.models.deepseek_v32 import DeepseekV32DecoderLayer

    return DeepseekV32DecoderLayer(args, args.num_hidden_layers + j)


def pair_cache(_args: Any, _j: int, rows: int) -> PairCache:
    """The latents' cache and the indexer's."""
    return PairCache(RowCache(rows), RowCache(rows))


FAMILY = HeadFamily(
    name="deepseek_v32",
    types=frozenset({"deepseek_v32"}),
    scheme="latent_sparse",
    keys=APPENDED,
    block=sparse_block,
    cache=pair_cache,
    mask=first_array_mask,
    convert=(split_latent, stack_gated),
)
