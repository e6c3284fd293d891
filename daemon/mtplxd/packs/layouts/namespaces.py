"""Heads in a namespace of their own beside the layers: MiMo-7B, MiMo-V2, LongCat-Flash and Ernie 4.5."""

from __future__ import annotations

from mtplxd.packs.layouts.blocks import (
    BLOCK_NORMS,
    attention,
    glue,
    latent_attention,
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

_MIMO = r"mtp_layers\.(\d{1,4})\."
_MIMO_V2 = r"mtp\.layers\.(\d{1,4})\."
_ERNIE = r"mtp_[a-z_]+\.(\d{1,4})\."


def _mimo(seen: Seen) -> Shapes:
    config, tensors = seen.config, seen.tensors
    hidden, width = size(config, "hidden_size"), size(config, "intermediate_size")
    names = ("token_layernorm", "hidden_layernorm", "final_layernorm", *BLOCK_NORMS)
    shapes: Shapes = {}
    for layer in indexes(tensors, _MIMO):
        prefix = f"mtp_layers.{layer}."
        shapes |= glue(prefix, hidden, names, "input_proj")
        shapes |= attention(config, f"{prefix}self_attn.", ("q_proj", "k_proj", "v_proj"))
        shapes |= mlp(f"{prefix}mlp.", hidden, width)
    return shapes


def _mimo_v2(seen: Seen) -> Shapes:
    config, tensors = seen.config, seen.tensors
    hidden, width = size(config, "hidden_size"), size(config, "intermediate_size")
    names = ("enorm", "hnorm", "final_layernorm", "input_layernorm", "pre_mlp_layernorm")
    shapes: Shapes = {}
    for layer in indexes(tensors, _MIMO_V2):
        prefix = f"mtp.layers.{layer}."
        shapes |= glue(prefix, hidden, names) | mlp(f"{prefix}mlp.", hidden, width)
        shapes |= _window_attention(config, tensors, f"{prefix}self_attn.")
    return shapes


def _window_attention(config: Config, tensors: Tensors, prefix: str) -> Shapes:
    """Sliding-window attention with a sink a head; queries, keys and values in one matrix or three."""
    hidden, heads = size(config, "hidden_size"), size(config, "swa_num_attention_heads")
    groups = size(config, "swa_num_key_value_heads")
    dim, value = size(config, "swa_head_dim"), size(config, "swa_v_head_dim")
    rows = {"q_proj": heads * dim, "k_proj": groups * dim, "v_proj": groups * value}
    if any(name.endswith(".qkv_proj.weight") for name in tensors):
        rows = {"qkv_proj": sum(rows.values())}
    shapes = {name: (wide, hidden) for name, wide in rows.items()} | {"o_proj": (hidden, heads * value)}
    sinks = config.get("add_swa_attention_sink_bias") is not False
    return linears(prefix, shapes) | ({f"{prefix}attention_sink_bias": (heads,)} if sinks else {})


def _longcat(seen: Seen) -> Shapes:
    config = seen.config
    hidden, prefix = size(config, "hidden_size"), "mtp.layers.0."
    shapes: Shapes = {"mtp.embed_tokens.weight": (size(config, "vocab_size"), hidden)}
    shapes |= norms("mtp.", ("norm",), hidden)
    shapes |= glue(prefix, hidden, ("enorm.m", "hnorm.m", *BLOCK_NORMS))
    shapes |= latent_attention(config, seen.tensors, f"{prefix}self_attn.")
    return shapes | mlp(f"{prefix}transformer_layer.mlp.", hidden, size(config, "ffn_hidden_size"))


def _ernie(seen: Seen) -> Shapes:
    config, tensors = seen.config, seen.tensors
    hidden, width = size(config, "hidden_size"), size(config, "intermediate_size")
    biased = bool(config.get("use_bias"))
    biases = ("q_proj", "k_proj", "v_proj", "o_proj") if biased else ()
    shapes: Shapes = {}
    for layer in indexes(tensors, _ERNIE):
        prefix = f"mtp_block.{layer}."
        shapes |= norms("", (f"mtp_emb_norm.{layer}", f"mtp_hidden_norm.{layer}"), hidden)
        shapes[f"mtp_linear_proj.{layer}.weight"] = (hidden, 2 * hidden)
        shapes |= norms(prefix, BLOCK_NORMS, hidden) | attention(config, f"{prefix}self_attn.", biases)
        shapes |= mlp(f"{prefix}mlp.", hidden, width, bias=biased)
    return shapes


ROWS = (
    Layout(
        name="mimo",
        kind="namespace",
        families=frozenset({"mimo"}),
        owns=under("mtp_layers."),
        signature=("mtp_layers.0.input_proj.weight",),
        home="model.",
        prefix="mtp_layers.",
        expected=_mimo,
        layers=numbered(_MIMO),
        depth=numbered(_MIMO),
    ),
    Layout(
        name="mimo_v2",
        kind="namespace",
        families=frozenset({"mimo_v2_flash", "mimo_v2"}),
        owns=under("mtp."),
        signature=("mtp.layers.0.pre_mlp_layernorm.weight",),
        home="model.",
        expected=_mimo_v2,
        layers=numbered(_MIMO_V2),
        depth=numbered(_MIMO_V2),
    ),
    Layout(
        name="longcat",
        kind="namespace",
        families=frozenset({"longcat_flash", "longcat_flash_ngram"}),
        owns=under("mtp."),
        signature=("mtp.layers.0.enorm.m.weight",),
        home="model.",
        expected=_longcat,
        aliases=("lm_head",),
    ),
    Layout(
        name="ernie",
        kind="namespace",
        families=frozenset({"ernie4_5_moe"}),
        owns=under("mtp_emb_norm.", "mtp_hidden_norm.", "mtp_linear_proj.", "mtp_block."),
        signature=("mtp_block.0.input_layernorm.weight",),
        home="model.",
        prefix="mtp_",
        expected=_ernie,
        layers=numbered(_ERNIE),
        depth=recursive_alone(numbered(_ERNIE)),
    ),
)
