"""Qwen3-Next and Qwen3.5 to 3.8: `mtp.*`, one full-attention block, dense or with experts. Not `qwen4_exp`."""

from __future__ import annotations

from mtplxd.packs.layouts.blocks import (
    BLOCK_NORMS,
    count,
    gated_experts,
    glue,
    head_dim_of,
    linears,
    mlp,
    norms,
    size,
)
from mtplxd.packs.layouts.row import (
    Config,
    Layout,
    Seen,
    Shapes,
    Tensors,
    indexes,
    numbered,
    recursive_alone,
    under,
)

_LAYERS = r"mtp\.layers\.(\d{1,4})\."


def _expected(seen: Seen) -> Shapes:
    config, tensors = seen.config, seen.tensors
    hidden = size(config, "hidden_size")
    names = ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")
    shapes = glue("mtp.", hidden, names, "fc")
    for layer in indexes(tensors, _LAYERS):
        shapes |= _block(config, tensors, f"mtp.layers.{layer}.")
    return shapes


def _block(config: Config, tensors: Tensors, prefix: str) -> Shapes:
    hidden = size(config, "hidden_size")
    feed = f"{prefix}mlp."
    shapes = norms(prefix, BLOCK_NORMS, hidden) | _gated_attention(config, f"{prefix}self_attn.")
    if experts := count(config, "num_experts"):
        return shapes | _sparse(config, tensors, feed, experts)
    return shapes | mlp(feed, hidden, size(config, "intermediate_size"))


def _gated_attention(config: Config, prefix: str) -> Shapes:
    """Queries carry an output gate of their own size, interleaved by head."""
    hidden, heads, dim = size(config, "hidden_size"), size(config, "num_attention_heads"), head_dim_of(config)
    keys = size(config, "num_key_value_heads", heads) * dim
    shapes = {
        "q_proj": (2 * heads * dim, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, heads * dim),
    }
    return linears(prefix, shapes) | norms(prefix, ("q_norm", "k_norm"), dim)


def _sparse(config: Config, tensors: Tensors, prefix: str, experts: int) -> Shapes:
    hidden, width = size(config, "hidden_size"), size(config, "moe_intermediate_size")
    shapes: Shapes = {
        f"{prefix}gate.weight": (experts, hidden),
        f"{prefix}shared_expert_gate.weight": (1, hidden),
    }
    shapes |= mlp(f"{prefix}shared_expert.", hidden, size(config, "shared_expert_intermediate_size"))
    if f"{prefix}experts.gate_up_proj" in tensors or f"{prefix}experts.down_proj" in tensors:
        shapes[f"{prefix}experts.gate_up_proj"] = (experts, 2 * width, hidden)
        shapes[f"{prefix}experts.down_proj"] = (experts, hidden, width)
        return shapes
    return shapes | gated_experts(prefix, tensors, experts, hidden, width)


ROWS = (
    Layout(
        name="qwen",
        kind="prefix",
        families=frozenset({"qwen3_next", "qwen3_5", "qwen3_5_moe"}),
        owns=under("mtp."),
        signature=("mtp.fc.weight",),
        expected=_expected,
        layers=numbered(_LAYERS),
        depth=recursive_alone(numbered(_LAYERS)),
    ),
)
