"""MiMo-7B: one block under `mtp_layers.*`, fed the hidden before the body's final norm, hidden half first.

Where sources contradict each other on the tap, this is Xiaomi's own code; a pack may say otherwise.
"""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import RowCache
from mtplxd.families.heads.row import HeadFamily, HeadSettings, causal_mask, placed

PARTS = {
    "token_layernorm.": "enorm.",
    "hidden_layernorm.": "hnorm.",
    "input_proj.": "fc.",
    "final_layernorm.": "norm.",
}


def _block(args: Any, _j: int) -> Any:
    from mlx_lm.models.mimo import TransformerBlock

    return TransformerBlock(args)


FAMILY = HeadFamily(
    name="mimo",
    types=frozenset({"mimo"}),
    scheme="mimo",
    keys=placed(r"mtp_layers\.(\d+)\.", PARTS),
    block=_block,
    cache=lambda _args, _j, rows: RowCache(rows),
    mask=causal_mask,
    settings=HeadSettings(tap="pre", recursion="pre", concat="hidden_first"),
)
