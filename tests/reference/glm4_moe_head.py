"""GLM-4.5's head from its equations: grouped-query attention, half of each head rotated, routed experts."""

from __future__ import annotations

from typing import Any

from reference.attention import Floats, Grouped, Weights, attend, within
from reference.deepseek_head import shared_head
from reference.joint import ReferenceHead


def glm4_moe_head(
    weights: Weights, config: dict[str, Any], embedding: Floats, output: Floats
) -> ReferenceHead:
    """From published tensors named from `model.layers.` on."""
    head, eps = within(weights, f"model.layers.{config['num_hidden_layers']}."), config["rms_norm_eps"]
    layer = Grouped(
        config["num_attention_heads"],
        config["num_key_value_heads"],
        config["head_dim"],
        theta=config["rope_theta"],
        rotated=int(config["head_dim"] * config["partial_rotary_factor"]),
        eps=eps,
    )
    return shared_head(
        head, config, embedding, output, lambda x: attend(x, within(head, "self_attn."), layer), eps
    )
