"""Nemotron-H's head from its equations: attention that rotates nothing, then experts with squared ReLU."""

from __future__ import annotations

from typing import Any

from reference.attention import Floats, Grouped, Weights, attend, linear, rms_norm, within
from reference.experts import mix_experts, squared_mlp, top_sigmoid
from reference.joint import ReferenceHead


def nemotron_head(
    weights: Weights, config: dict[str, Any], embedding: Floats, output: Floats
) -> ReferenceHead:
    """From published tensors named from `mtp.` on."""
    one, two = (within(weights, f"mtp.layers.{i}.") for i in (0, 1))
    eps = config["layer_norm_epsilon"]
    layer = Grouped(
        config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"], theta=None
    )

    def block(x: Floats) -> Floats:
        x = x + attend(rms_norm(x, one["norm.weight"], eps), within(one, "mixer."), layer)
        return x + experts(rms_norm(x, two["norm.weight"], eps), within(two, "mixer."), config)

    return ReferenceHead(
        block=block,
        joint=one["eh_proj.weight"],
        embed_norm=one["enorm.weight"],
        hidden_norm=one["hnorm.weight"],
        output_norm=two["final_layernorm.weight"],
        embedding=embedding,
        output=output,
        eps=eps,
    )


def experts(x: Floats, weights: Weights, config: dict[str, Any]) -> Floats:
    """Routed experts, in a narrower space where there is one, beside shared ones."""
    route = top_sigmoid(
        config["num_experts_per_tok"],
        weights["gate.e_score_correction_bias"],
        config["routed_scaling_factor"],
        groups=config["n_group"],
        kept=config["topk_group"],
        normalise=config["norm_topk_prob"],
    )
    shared = squared_mlp(x, within(weights, "shared_experts."))
    if not config.get("moe_latent_size"):
        return mix_experts(x, weights, route, squared_mlp) + shared
    narrow = linear(x, weights, "fc1_latent_proj")
    return linear(mix_experts(x, weights, route, squared_mlp, narrow), weights, "fc2_latent_proj") + shared
