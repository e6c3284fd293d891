"""Published heads: one small file a family says what its head is, the files beside them bind and drive it.

Key tables that need no MLX are `packs.layouts`; what the engine asks of a head is `families.protocols`.
"""

from __future__ import annotations

from mtplxd.families.heads import (
    deepseek_v3,
    deepseek_v32,
    glm4_moe,
    glm4_moe_lite,
    glm_moe_dsa,
    mimo_v2_flash,
    step3p5,
)
from mtplxd.families.heads.row import HeadFamily

FAMILIES: tuple[HeadFamily, ...] = (
    deepseek_v3.FAMILY,
    deepseek_v32.FAMILY,
    glm4_moe.FAMILY,
    glm4_moe_lite.FAMILY,
    glm_moe_dsa.FAMILY,
    mimo_v2_flash.FAMILY,
    step3p5.FAMILY,
)


def find_family(model_type: str, scheme: str) -> HeadFamily | None:
    """The row for a body's model type whose head is stored in the layout `scheme`."""
    return next((row for row in FAMILIES if model_type in row.types and row.scheme == scheme), None)
