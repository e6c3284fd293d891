"""LongCat-Flash's head from its equations: scaled latent attention, a dense MLP, an embedding of its own."""

from __future__ import annotations

from typing import Any

from reference.attention import Floats, Weights, within
from reference.experts import gated_mlp
from reference.joint import ReferenceHead, residual_block
from reference.latent import Latent, attend_latent


def longcat_head(
    weights: Weights, config: dict[str, Any], _embedding: Floats, output: Floats
) -> ReferenceHead:
    """From published tensors named from `model.mtp.` on."""
    head = within(weights, "model.mtp.")
    block, eps = within(head, "layers.0."), config["rms_norm_eps"]
    hidden, rank, low = (config[name] for name in ("hidden_size", "kv_lora_rank", "q_lora_rank"))
    layer = Latent(
        config["num_attention_heads"],
        rank,
        config["qk_nope_head_dim"],
        config["qk_rope_head_dim"],
        config["v_head_dim"],
        theta=config["rope_theta"],
        eps=1e-5,
        query_norm_eps=1e-5,
        query_factor=(hidden / low) ** 0.5,
        latent_factor=(hidden / rank) ** 0.5,
    )
    return ReferenceHead(
        block=residual_block(
            lambda x: attend_latent(x, within(block, "self_attn."), layer),
            lambda x: gated_mlp(x, within(block, "transformer_layer.mlp.")),
            block["input_layernorm.weight"],
            block["post_attention_layernorm.weight"],
            eps,
        ),
        joint=block["eh_proj.weight"],
        embed_norm=block["enorm.m.weight"],
        hidden_norm=block["hnorm.m.weight"],
        output_norm=head["norm.weight"],
        embedding=head["embed_tokens.weight"],
        output=output,
        eps=eps,
    )
