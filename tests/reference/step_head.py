"""Step-3.5's head from its equations: three gated sliding-window blocks, norms stored less one, own output matrices."""

from __future__ import annotations

from typing import Any

from reference.attention import Floats, Grouped, Weights, linear, mix, project, sigmoid, within
from reference.chained import ReferenceChain
from reference.experts import gated_mlp
from reference.joint import ReferenceHead, residual_block


def step_head(weights: Weights, config: dict[str, Any], embedding: Floats, _output: Floats) -> ReferenceChain:
    """From published tensors named from `model.layers.` on."""
    first = config["num_hidden_layers"]
    return ReferenceChain(
        tuple(_layer(weights, config, embedding, first + j) for j in range(3)), of_target=False
    )


def _layer(weights: Weights, config: dict[str, Any], embedding: Floats, index: int) -> ReferenceHead:
    head, eps = within(weights, f"model.layers.{index}."), config["rms_norm_eps"]
    slides = config["layer_types"][index] == "sliding_attention"
    sizes = {**config, **config["attention_other_setting"]} if slides else config
    layer = Grouped(
        sizes["num_attention_heads"],
        sizes["num_attention_groups"],
        config["head_dim"],
        theta=config["rope_theta"][index],
        rotated=int(config["head_dim"] * config["partial_rotary_factors"][index]),
        window=config["sliding_window"] if slides else None,
        eps=eps,
        offset=1.0,
    )
    inner = within(head, "self_attn.")

    def attention(x: Floats) -> Floats:
        found = mix(*project(x, inner, layer), layer) * sigmoid(linear(x, inner, "g_proj"))[..., None]
        return linear(found.reshape(len(x), -1), inner, "o_proj")

    return ReferenceHead(
        block=residual_block(
            attention,
            lambda x: gated_mlp(x, within(head, "mlp.")),
            1 + head["input_layernorm.weight"],
            1 + head["post_attention_layernorm.weight"],
            eps,
        ),
        joint=head["eh_proj.weight"],
        embed_norm=1 + head["enorm.weight"],
        hidden_norm=1 + head["hnorm.weight"],
        output_norm=1 + head["transformer.shared_head.norm.weight"],
        embedding=embedding,
        output=head["transformer.shared_head.output.weight"],
        eps=eps,
        feeds_back_normed=False,
    )
