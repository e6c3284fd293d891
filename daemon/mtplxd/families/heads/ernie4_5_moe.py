"""Ernie 4.5: one dense block whose parts stand apart in `mtp_emb_norm`, `mtp_hidden_norm`, `mtp_linear_proj` and
`mtp_block`, without a norm before the output matrix."""

from __future__ import annotations

import re
from typing import Any

from mtplxd.families.caches import RowCache
from mtplxd.families.heads.row import HeadFamily, causal_mask

_NAME = re.compile(r"(mtp_[a-z_]+)\.(\d+)\.")
_PARTS = {"mtp_emb_norm": "enorm", "mtp_hidden_norm": "hnorm", "mtp_linear_proj": "fc", "mtp_block": "block"}


def _keys(name: str, _layers: int) -> tuple[int, str]:
    found = _NAME.match(name)
    if not found or found[1] not in _PARTS:
        return 0, name
    return int(found[2]), f"{_PARTS[found[1]]}.{name[found.end() :]}"


def _block(args: Any, _j: int) -> Any:
    """Dense: layer 0 lies before the first one with experts."""
    from mlx_lm.models.ernie4_5_moe import Ernie4_5_DecoderLayer

    return Ernie4_5_DecoderLayer(args, 0)


FAMILY = HeadFamily(
    name="ernie4_5_moe",
    types=frozenset({"ernie4_5_moe"}),
    scheme="ernie",
    keys=_keys,
    block=_block,
    cache=lambda _args, _j, rows: RowCache(rows),
    mask=causal_mask,
    output_norm=False,
)
