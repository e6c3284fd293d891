"""MiMo-7B's head from its equations: hidden half first, its own state fed back before the output norm."""

from __future__ import annotations

from typing import Any

from reference.attention import Floats, Grouped, Weights, attend, within
from reference.experts import gated_mlp
from reference.joint import ReferenceHead, residual_block


def mimo_head(weights: Weights, config: dict[str, Any], embedding: Floats, output: Floats) -> ReferenceHead:
    """From published tensors named from `model.mtp_layers.` on."""
    head, eps = within(weights, "model.mtp_layers.0."), config["rms_norm_eps"]
    heads = config["num_attention_heads"]
    layer = Grouped(
        heads, config["num_key_value_heads"], config["hidden_size"] // heads, theta=config["rope_theta"]
    )
    return ReferenceHead(
        block=residual_block(
            lambda x: attend(x, within(head, "self_attn."), layer),
            lambda x: gated_mlp(x, within(head, "mlp.")),
            head["input_layernorm.weight"],
            head["post_attention_layernorm.weight"],
            eps,
        ),
        joint=head["input_proj.weight"],
        embed_norm=head["token_layernorm.weight"],
        hidden_norm=head["hidden_layernorm.weight"],
        output_norm=head["final_layernorm.weight"],
        embedding=embedding,
        output=output,
        eps=eps,
        hidden_first=True,
        feeds_back_normed=False,
    )
