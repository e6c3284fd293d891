"""Published heads: one small file a family says what its head is, the files beside them bind and drive it.

Key tables that need no MLX are `packs.layouts`; what the engine asks of a head is `families.protocols`.
"""

from __future__ import annotations

from mtplxd.families.heads import deepseek_v3, glm4_moe, glm4_moe_lite
from mtplxd.families.heads.row import HeadFamily

FAMILIES: tuple[HeadFamily, ...] = (
    deepseek_v3.FAMILY,
    glm4_moe.FAMILY,
    glm4_moe_lite.FAMILY,
)


def find_family(model_type: str, scheme: str) -> HeadFamily | None:
    """The row for a body's model type whose head is stored in the layout `scheme`."""
    return next((row for row in FAMILIES if model_type in row.types and row.scheme == scheme), None)
