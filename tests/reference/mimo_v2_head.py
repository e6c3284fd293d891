"""MiMo-V2's head from its equations: three sliding-window blocks with sinks, all fed with the target's hidden."""

from __future__ import annotations

from typing import Any

import numpy as np
from reference.attention import Floats, Grouped, Weights, linear, turned, within
from reference.chained import ReferenceChain
from reference.experts import gated_mlp
from reference.joint import ReferenceHead, residual_block


def mimo_v2_head(
    weights: Weights, config: dict[str, Any], embedding: Floats, output: Floats
) -> ReferenceChain:
    """From published tensors named from `model.mtp.layers.` on."""
    layers = (_layer(within(weights, f"model.mtp.layers.{j}."), config, embedding, output) for j in range(3))
    return ReferenceChain(tuple(layers), of_target=True)


def _layer(head: Weights, config: dict[str, Any], embedding: Floats, output: Floats) -> ReferenceHead:
    eps = config["layernorm_epsilon"]
    return ReferenceHead(
        block=residual_block(
            lambda x: _attend(x, within(head, "self_attn."), config),
            lambda x: gated_mlp(x, within(head, "mlp.")),
            head["input_layernorm.weight"],
            head["pre_mlp_layernorm.weight"],
            eps,
        ),
        joint=head["eh_proj.weight"],
        embed_norm=head["enorm.weight"],
        hidden_norm=head["hnorm.weight"],
        output_norm=head["final_layernorm.weight"],
        embedding=embedding,
        output=output,
        eps=eps,
    )


def _attend(x: Floats, weights: Weights, config: dict[str, Any]) -> Floats:
    """The sink is one more score a head, whose share of the softmax goes to nothing."""
    length, heads, groups = len(x), config["swa_num_attention_heads"], config["swa_num_key_value_heads"]
    dim = config["swa_head_dim"]
    turn = Grouped(
        heads, groups, dim, theta=config["swa_rope_theta"], rotated=int(dim * config["partial_rotary_factor"])
    )
    q, k, v = (linear(x, weights, name) for name in ("q_proj", "k_proj", "v_proj"))
    q, k = turned(q.reshape(length, heads, dim), turn), turned(k.reshape(length, groups, dim), turn)
    v = v.reshape(length, groups, -1) * config["attention_value_scale"]
    k, v = (np.repeat(part, heads // groups, axis=1) for part in (k, v))
    apart = np.arange(length)[:, None] - np.arange(length)
    seen = (apart >= 0) & (apart < config["sliding_window_size"])
    raised = np.exp(np.where(seen, np.einsum("ihd,jhd->hij", q, k) / np.sqrt(dim), -np.inf))
    sink = np.exp(weights["attention_sink_bias"])[:, None, None]
    shares = raised / (raised.sum(axis=-1, keepdims=True) + sink)
    return linear(np.einsum("hij,jhd->ihd", shares, v).reshape(length, -1), weights, "o_proj")
