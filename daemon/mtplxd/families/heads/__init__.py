"""Published heads: one small file a family says what its head is, the files beside them bind and drive it.

Key tables that need no MLX are `packs.layouts`; what the engine asks of a head is `families.protocols`.
"""

from __future__ import annotations

from mtplxd.families.heads import (
    deepseek_v3,
    deepseek_v32,
    ernie4_5_moe,
    glm4_moe,
    glm4_moe_lite,
    glm_moe_dsa,
    longcat_flash,
    mimo,
    mimo_v2_flash,
    nemotron_h,
    qwen3_5,
    qwen3_5_moe,
    qwen3_next,
    step3p5,
)
from mtplxd.families.heads.row import HeadFamily

FAMILIES: tuple[HeadFamily, ...] = (
    deepseek_v3.FAMILY,
    deepseek_v32.FAMILY,
    ernie4_5_moe.FAMILY,
    glm4_moe.FAMILY,
    glm4_moe_lite.FAMILY,
    glm_moe_dsa.FAMILY,
    longcat_flash.FAMILY,
    mimo.FAMILY,
    mimo_v2_flash.FAMILY,
    nemotron_h.FAMILY,
    qwen3_5.FAMILY,
    qwen3_5_moe.FAMILY,
    qwen3_next.FAMILY,
    step3p5.FAMILY,
)


def find_family(model_type: str, scheme: str) -> HeadFamily | None:
    """The row for a body's model type whose head is stored in the layout `scheme`."""
    return next((row for row in FAMILIES if model_type in row.types and row.scheme == scheme), None)
