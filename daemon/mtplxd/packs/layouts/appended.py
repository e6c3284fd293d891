"""Heads stored as further layers after the body's last: DeepSeek V3 and V3.2, GLM 4.5 to 5, Step 3.5."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mtplxd.packs.layouts.blocks import (
    BLOCK_NORMS,
    attention,
    count,
    gated_experts,
    glue,
    latent_attention,
    linears,
    mlp,
    norms,
    router,
    size,
)
from mtplxd.packs.layouts.row import (
    MAX_LAYERS,
    Config,
    Layout,
    Seen,
    Shapes,
    Tensors,
    appended,
    layer_of,
    recursive_alone,
)

_COPIES = {"embed_tokens.weight": "embed_tokens", "shared_head.head.weight": "lm_head"}
_GLUE = ("enorm", "hnorm", "shared_head.norm", *BLOCK_NORMS)
_STEP_GLUE = ("enorm", "hnorm", "transformer.shared_head.norm", *BLOCK_NORMS)

Attention = Callable[[Config, Tensors, str], Shapes]


def _prefixes(config: Config, tensors: Tensors) -> list[str]:
    """Every layer from the body's last on to the highest found."""
    first = size(config, "num_hidden_layers")
    last = min(max(map(layer_of, tensors), default=first), first + MAX_LAYERS)
    return [f"layers.{layer}." for layer in range(first, max(first, last) + 1)]


def _layers(seen: Seen) -> int:
    return len({layer_of(name) for name in seen.tensors}) or 1


def _shared_head(attend: Attention, seen: Seen) -> Shapes:
    config, tensors = seen.config, seen.tensors
    hidden, vocab = size(config, "hidden_size"), size(config, "vocab_size")
    shapes: Shapes = {}
    for prefix in _prefixes(config, tensors):
        shapes |= glue(prefix, hidden, _GLUE) | attend(config, tensors, f"{prefix}self_attn.")
        shapes |= _feed_forward(config, tensors, f"{prefix}mlp.")
        shapes |= {prefix + name: (vocab, hidden) for name in _COPIES if prefix + name in tensors}
    return shapes


def _feed_forward(config: Config, tensors: Tensors, prefix: str) -> Shapes:
    hidden, experts = size(config, "hidden_size"), count(config, "n_routed_experts")
    if not experts:
        return mlp(prefix, hidden, size(config, "intermediate_size"))
    width = size(config, "moe_intermediate_size")
    shapes = router(prefix, experts, hidden) | gated_experts(prefix, tensors, experts, hidden, width)
    if shared := count(config, "n_shared_experts"):
        shapes |= mlp(f"{prefix}shared_experts.", hidden, width * shared)
    return shapes


def _grouped(config: Config, _tensors: Tensors, prefix: str) -> Shapes:
    biases = ("q_proj", "k_proj", "v_proj") if config.get("attention_bias") else ()
    return attention(config, prefix, biases, qk_norm=bool(config.get("use_qk_norm")))


def _step(seen: Seen) -> Shapes:
    """A dense block a layer, with an output matrix of its own."""
    config, tensors = seen.config, seen.tensors
    hidden, vocab = size(config, "hidden_size"), size(config, "vocab_size")
    shapes: Shapes = {}
    for prefix in _prefixes(config, tensors):
        shapes |= glue(prefix, hidden, _STEP_GLUE)
        shapes[f"{prefix}transformer.shared_head.output.weight"] = (vocab, hidden)
        shapes |= _step_attention(config, f"{prefix}self_attn.", layer_of(prefix))
        shapes |= mlp(f"{prefix}mlp.", hidden, size(config, "intermediate_size"))
    return shapes


def _step_attention(config: Config, prefix: str, layer: int) -> Shapes:
    """Sliding layers have head counts of their own; the config's list of kinds goes on over the head's layers."""
    kinds, other = config.get("layer_types") or [], config.get("attention_other_setting") or {}
    sliding = layer < len(kinds) and kinds[layer] == "sliding_attention"
    counts = {**config, **other} if sliding else config
    hidden, dim = size(config, "hidden_size"), size(config, "head_dim")
    heads = size(counts, "num_attention_heads")
    keys = size(counts, "num_attention_groups") * dim
    shapes = {
        "q_proj": (heads * dim, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, heads * dim),
    }
    if config.get("use_head_wise_attn_gate") is not False:
        shapes["g_proj"] = (heads, hidden)
    return linears(prefix, shapes) | norms(prefix, ("q_norm", "k_norm"), dim)


def _row(name: str, families: set[str], attend: Attention) -> Layout:
    return Layout(
        name=name,
        kind="appended",
        families=frozenset(families),
        owns=appended,
        signature=("layers.{N}.eh_proj.weight", "layers.{N}.shared_head.norm.weight"),
        home="model.",
        prefix="layers.{N}.",
        expected=partial(_shared_head, attend),
        layers=_layers,
        depth=recursive_alone(_layers),
        copies=_COPIES,
    )


ROWS = (
    Layout(
        name="step",
        kind="appended",
        families=frozenset({"step3p5", "step3p7"}),
        owns=appended,
        signature=("layers.{N}.transformer.shared_head.output.weight",),
        home="model.",
        prefix="layers.{N}.",
        expected=_step,
        layers=_layers,
        depth=_layers,
        aliases=("embed_tokens",),
    ),
    _row("latent", {"deepseek_v3", "glm4_moe_lite", "kimi_k2", "joyai_llm_flash"}, latent_attention),
    _row("latent_sparse", {"deepseek_v32", "glm_moe_dsa"}, partial(latent_attention, indexer=True)),
    _row("grouped", {"glm4_moe"}, _grouped),
)
