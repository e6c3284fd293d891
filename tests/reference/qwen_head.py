"""The head of Qwen3-Next and Qwen3.5 to 3.8 from its equations; all its norms are stored less one."""

from __future__ import annotations

from typing import Any

from reference.attention import Floats, Grouped, Weights, linear, mix, normed, sigmoid, turned, within
from reference.experts import gated_mlp, mix_experts, top_softmax
from reference.joint import ReferenceHead, residual_block


def qwen_head(weights: Weights, config: dict[str, Any], embedding: Floats, output: Floats) -> ReferenceHead:
    """From published tensors named from `mtp.` on, and the text config."""
    head = within(weights, "mtp.")
    block, eps = within(head, "layers.0."), config["rms_norm_eps"]
    return ReferenceHead(
        block=residual_block(
            lambda x: gated_attention(x, within(block, "self_attn."), config),
            lambda x: feed_forward(x, within(block, "mlp."), config),
            1 + block["input_layernorm.weight"],
            1 + block["post_attention_layernorm.weight"],
            eps,
        ),
        joint=head["fc.weight"],
        embed_norm=1 + head["pre_fc_norm_embedding.weight"],
        hidden_norm=1 + head["pre_fc_norm_hidden.weight"],
        output_norm=1 + head["norm.weight"],
        embedding=embedding,
        output=output,
        eps=eps,
    )


def gated_attention(x: Floats, weights: Weights, config: dict[str, Any]) -> Floats:
    """o_proj(attention · sigmoid(gate)); the query projection gives each head its query, then its gate."""
    rope = config.get("rope_parameters") or config
    dim = config["head_dim"]
    layer = Grouped(
        config["num_attention_heads"],
        config["num_key_value_heads"],
        dim,
        theta=rope["rope_theta"],
        rotated=int(dim * rope["partial_rotary_factor"]),
        eps=config["rms_norm_eps"],
        offset=1.0,
    )
    both = linear(x, weights, "q_proj").reshape(len(x), layer.heads, 2, dim)
    q, gate = both[:, :, 0], both[:, :, 1]
    k, v = (linear(x, weights, name).reshape(len(x), -1, dim) for name in ("k_proj", "v_proj"))
    q, k = (
        turned(normed(part, weights, name, layer), layer) for part, name in ((q, "q_norm"), (k, "k_norm"))
    )
    found = mix(q, k, v, layer) * sigmoid(gate)
    return linear(found.reshape(len(x), -1), weights, "o_proj")


def feed_forward(x: Floats, weights: Weights, config: dict[str, Any]) -> Floats:
    """Dense, or routed experts beside a shared one with a gate of its own."""
    if not config.get("num_experts"):
        return gated_mlp(x, weights)
    route = top_softmax(config["num_experts_per_tok"], normalise=config["norm_topk_prob"])
    shared = gated_mlp(x, within(weights, "shared_expert."))
    return mix_experts(x, weights, route) + sigmoid(linear(x, weights, "shared_expert_gate")) * shared
