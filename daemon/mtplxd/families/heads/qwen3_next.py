"""Qwen3-Next: one full-attention block with experts under `mtp.*`, whatever kinds of layers the body alternates."""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import RowCache
from mtplxd.families.heads.row import HeadFamily, HeadSettings, causal_mask, placed
from mtplxd.families.heads.stored import stack_gated

PARTS = {
    "fc.": "fc.",
    "norm.": "norm.",
    "pre_fc_norm_embedding.": "enorm.",
    "pre_fc_norm_hidden.": "hnorm.",
}
"""The names of all Qwen heads around their block."""
KEYS = placed(r"mtp\.(?:layers\.(\d+)\.)?", PARTS)
SETTINGS = HeadSettings(norm_convention="decide")
"""All seven norms are around 0 as published; conversions add the 1 to some files and not to others."""


def attention_index(args: Any) -> int:
    """A layer number past the body's that mlx-lm's classes give full attention and experts."""
    period = args.full_attention_interval * max(1, args.decoder_sparse_step)
    return int(period * args.num_hidden_layers - 1 + period)


def _block(args: Any, _j: int) -> Any:
    from mlx_lm.models.qwen3_next import Qwen3NextDecoderLayer

    return Qwen3NextDecoderLayer(args, attention_index(args))


FAMILY = HeadFamily(
    name="qwen3_next",
    types=frozenset({"qwen3_next"}),
    scheme="qwen",
    keys=KEYS,
    block=_block,
    cache=lambda _args, _j, rows: RowCache(rows),
    mask=causal_mask,
    convert=(stack_gated,),
    settings=SETTINGS,
)
