"""Ernie 4.5's head from its equations: a dense block, rotary embedding of neighbouring pairs, no output norm."""

from __future__ import annotations

from typing import Any

from reference.attention import Floats, Grouped, Weights, attend, within
from reference.experts import gated_mlp
from reference.joint import ReferenceHead, residual_block


def ernie_head(weights: Weights, config: dict[str, Any], embedding: Floats, output: Floats) -> ReferenceHead:
    """From published tensors named from `model.mtp_` on."""
    block, eps, heads = (
        within(weights, "model.mtp_block.0."),
        config["rms_norm_eps"],
        config["num_attention_heads"],
    )
    layer = Grouped(
        heads,
        config["num_key_value_heads"],
        config["hidden_size"] // heads,
        theta=config["rope_theta"],
        pairs=True,
    )
    return ReferenceHead(
        block=residual_block(
            lambda x: attend(x, within(block, "self_attn."), layer),
            lambda x: gated_mlp(x, within(block, "mlp.")),
            block["input_layernorm.weight"],
            block["post_attention_layernorm.weight"],
            eps,
        ),
        joint=weights["model.mtp_linear_proj.0.weight"],
        embed_norm=weights["model.mtp_emb_norm.0.weight"],
        hidden_norm=weights["model.mtp_hidden_norm.0.weight"],
        output_norm=None,
        embedding=embedding,
        output=output,
        eps=eps,
    )
