"""Qwen3.5 to 3.8, dense: one full-attention block under `mtp.*`, beside a body whose text part is wrapped."""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import RowCache
from mtplxd.families.heads.qwen3_next import KEYS, SETTINGS, attention_index
from mtplxd.families.heads.row import HeadFamily, causal_mask


def make_block(args: Any, _j: int) -> Any:
    """The block, dense or with experts as the body's arguments say."""
    from mlx_lm.models.qwen3_5 import DecoderLayer

    return DecoderLayer(args, attention_index(args))


FAMILY = HeadFamily(
    name="qwen3_5",
    types=frozenset({"qwen3_5"}),
    scheme="qwen",
    keys=KEYS,
    block=make_block,
    cache=lambda _args, _j, rows: RowCache(rows),
    mask=causal_mask,
    settings=SETTINGS,
)
