"""What the heads of DeepSeek and GLM have in common: the names of their layers, appended after the body's."""

from __future__ import annotations

from mtplxd.families.heads.row import KeyMap, placed

_PARTS = {
    "enorm.": "enorm.",
    "hnorm.": "hnorm.",
    "eh_proj.": "fc.",
    "shared_head.norm.": "norm.",
    "shared_head.head.": "output.",
    "embed_tokens.": "embed_tokens.",
}
APPENDED: KeyMap = placed(r"layers\.(\d+)\.", _PARTS, appended=True)
"""`embed_tokens` and `shared_head.head` are copies of the body's where a checkpoint has them."""
