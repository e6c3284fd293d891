"""The heads of DeepSeek-V3 and V3.2, GLM-4.7-Flash and GLM-5 from their equations: latent attention, routed experts."""

from __future__ import annotations

from typing import Any

from reference.attention import Floats, Weights, within
from reference.experts import gated_mlp, mix_experts, top_sigmoid
from reference.joint import ReferenceHead, residual_block
from reference.latent import Latent, attend_latent


def deepseek_head(
    weights: Weights, config: dict[str, Any], embedding: Floats, output: Floats, **latent: Any
) -> ReferenceHead:
    """From published tensors named from `model.layers.` on. `latent` are further switches of the attention."""
    head, eps = within(weights, f"model.layers.{config['num_hidden_layers']}."), config["rms_norm_eps"]
    layer = Latent(
        config["num_attention_heads"],
        config["kv_lora_rank"],
        config["qk_nope_head_dim"],
        config["qk_rope_head_dim"],
        config["v_head_dim"],
        theta=(config.get("rope_parameters") or config)["rope_theta"],
        top_k=config.get("index_topk"),
        index_heads=config.get("index_n_heads", 0),
        **latent,
    )
    return shared_head(
        head, config, embedding, output, lambda x: attend_latent(x, within(head, "self_attn."), layer), eps
    )


def shared_head(
    head: Weights, config: dict[str, Any], embedding: Floats, output: Floats, attention: Any, eps: float
) -> ReferenceHead:
    """DeepSeek's and GLM's parts around an attention: experts beside a shared one, the matrices copied or not."""
    feed = within(head, "mlp.")
    route = top_sigmoid(
        config["num_experts_per_tok"],
        feed["gate.e_score_correction_bias"],
        config["routed_scaling_factor"],
        groups=config["n_group"],
        kept=config["topk_group"],
        normalise=config["norm_topk_prob"],
    )

    def experts(x: Floats) -> Floats:
        return mix_experts(x, feed, route) + gated_mlp(x, within(feed, "shared_experts."))

    return ReferenceHead(
        block=residual_block(
            attention, experts, head["input_layernorm.weight"], head["post_attention_layernorm.weight"], eps
        ),
        joint=head["eh_proj.weight"],
        embed_norm=head["enorm.weight"],
        hidden_norm=head["hnorm.weight"],
        output_norm=head["shared_head.norm.weight"],
        embedding=head.get("embed_tokens.weight", embedding),
        output=head.get("shared_head.head.weight", output),
        eps=eps,
    )
