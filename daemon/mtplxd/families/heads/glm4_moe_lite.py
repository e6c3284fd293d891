"""GLM-4.7-Flash: DeepSeek-V3's head around a block of its own class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mtplxd.families.heads import deepseek_v3


def _block(args: Any, j: int) -> Any:
    from mlx_lm.models.glm4_moe_lite import Glm4MoeLiteDecoderLayer

    return Glm4MoeLiteDecoderLayer(args, args.num_hidden_layers + j)


FAMILY = replace(deepseek_v3.FAMILY, name="glm4_moe_lite", types=frozenset({"glm4_moe_lite"}), block=_block)
