"""Gemma 4's assistants: a small model of its own, in its own checkpoint or under `mtp.` beside the body."""

from __future__ import annotations

import re
from typing import Any

from mtplxd.packs.headers import TensorInfo
from mtplxd.packs.layouts.blocks import linears, mlp, norms, size
from mtplxd.packs.layouts.row import Config, Layout, Seen, Shapes, Tensors, under

ASSISTANTS = frozenset({"gemma4_assistant", "gemma4_unified_assistant"})
TARGETS = frozenset({"gemma4", "gemma4_text", "gemma4_unified"})
_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_MAX_LAYERS = 64
_KINDS = ("sliding_attention", "full_attention")
_JOINTS = (
    ("backbone_hidden_size", "hidden_size"),
    ("vocab_size", "vocab_size"),
    ("head_dim", "head_dim"),
    ("global_head_dim", "global_head_dim"),
    ("sliding_window", "sliding_window"),
)
"""What an assistant and its target must have in common, under the name each has for it."""

_GROUPS = ("num_key_value_heads", "num_global_key_value_heads")


def joint_faults(config: Config, target: Config) -> list[str]:
    """Why an assistant of this config cannot read the keys and values of a target of that one."""
    faults = [
        f"{own} is {config.get(own)}, the target's {theirs} is {target.get(theirs)}"
        for own, theirs in _JOINTS
        if config.get(own) != target.get(theirs) and None not in (config.get(own), target.get(theirs))
    ]
    heads = config.get("num_attention_heads")
    for name in _GROUPS:
        groups = target.get(name)
        if type(heads) is int and type(groups) is int and groups > 0 and heads % groups:
            faults.append(f"num_attention_heads is {heads}, no multiple of the target's {groups} ({name})")
    return faults


def assistant_config(config: Config, tensors: Tensors, *, own: bool) -> dict[str, Any]:
    """What describes an assistant: its `own` config, or, beside a body of this config, what its tensors show.

    `tensors` have the names of an assistant's own checkpoint. Raises KeyError or ValueError as a layout does.
    """
    return dict(config) if own else {**config, **_infer(config, tensors)}


def _assistant(seen: Seen) -> Shapes:
    """All tensors of an assistant, from its own config."""
    config = seen.config
    hidden, vocab, heads = (size(config, n) for n in ("hidden_size", "vocab_size", "num_attention_heads"))
    backbone, width = size(config, "backbone_hidden_size"), size(config, "intermediate_size")
    shapes: Shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    shapes |= linears("", {"pre_projection": (hidden, 2 * backbone), "post_projection": (backbone, hidden)})
    shapes |= norms("model.", ("norm",), hidden)
    for layer, kind in enumerate(_kinds(config)):
        dim = size(config, "global_head_dim" if kind == "full_attention" else "head_dim")
        shapes |= _block(f"model.layers.{layer}.", hidden, heads * dim, dim, width)
    if config.get("use_ordered_embeddings"):
        clusters = size(config, "num_centroids")
        if vocab % clusters:
            raise ValueError(f"num_centroids is {clusters}, which does not divide the vocabulary of {vocab}")
        shapes["masked_embedding.centroids.weight"] = (clusters, hidden)
        shapes["masked_embedding.token_ordering"] = (vocab,)
    return shapes


def _block(prefix: str, hidden: int, queries: int, dim: int, width: int) -> Shapes:
    """A block without keys and values of its own: it attends to the target's."""
    shapes = norms(prefix, _NORMS, hidden) | {f"{prefix}layer_scalar": (1,)}
    shapes |= linears(f"{prefix}self_attn.", {"q_proj": (queries, hidden), "o_proj": (hidden, queries)})
    return shapes | norms(f"{prefix}self_attn.", ("q_norm",), dim) | mlp(f"{prefix}mlp.", hidden, width)


def _kinds(config: Config) -> list[str]:
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and 0 < len(kinds) <= _MAX_LAYERS and all(kind in _KINDS for kind in kinds):
        return kinds
    raise ValueError(f"layer_types is {kinds!r}")


def _beside_body(seen: Seen) -> Shapes:
    """The same under `mtp.`, where no config describes it: sizes come from the tensors, what joins the target
    (its hidden size and vocabulary) from the body's config."""
    inner = _inner(seen)
    shapes = _assistant(Seen(_infer(seen.config, inner), inner))
    return {f"mtp.{name}": shape for name, shape in shapes.items()}


def _beside_problems(seen: Seen) -> list[str]:
    return joint_faults(_infer(seen.config, _inner(seen)), seen.config)


def _inner(seen: Seen) -> dict[str, TensorInfo]:
    return {name.removeprefix("mtp."): info for name, info in seen.tensors.items()}


def _infer(config: Config, tensors: Tensors) -> dict[str, Any]:
    def dim(name: str, axis: int = 0) -> int:
        shape = tensors[name].shape
        if len(shape) <= axis or shape[axis] < 1:
            raise ValueError(f"{name} has shape {list(shape)}")
        return shape[axis]

    found = {int(match[1]) for name in tensors if (match := re.match(r"model\.layers\.(\d{1,3})\.", name))}
    dims = [
        dim(f"model.layers.{layer}.self_attn.q_norm.weight") for layer in range(max(found, default=0) + 1)
    ]
    small, large = _head_dims(config, dims)
    return {
        "hidden_size": dim("pre_projection.weight"),
        "backbone_hidden_size": size(config, "hidden_size"),
        "vocab_size": size(config, "vocab_size"),
        "num_attention_heads": max(dim("model.layers.0.self_attn.q_proj.weight") // dims[0], 1),
        "intermediate_size": dim("model.layers.0.mlp.gate_proj.weight"),
        "head_dim": small,
        "global_head_dim": large,
        "layer_types": ["sliding_attention" if width == small else "full_attention" for width in dims],
        "use_ordered_embeddings": "masked_embedding.centroids.weight" in tensors,
        "num_centroids": dim("masked_embedding.centroids.weight")
        if "masked_embedding.centroids.weight" in tensors
        else None,
    }


def _head_dims(config: Config, dims: list[int]) -> tuple[int, int]:
    """Widths of sliding and full heads, by which a layer's kind is told. Raises ValueError where it is not."""
    stated = [config.get(name) or 0 for name in ("head_dim", "global_head_dim")]
    small, large = stated if all(stated) else (min(dims), max(dims))
    if small == large or not set(dims) <= {small, large}:
        raise ValueError(
            f"the width of its heads, {sorted(set(dims))}, does not tell what its layers attend to"
        )
    return small, large


ROWS = (
    Layout(
        name="gemma4_assistant",
        kind="assistant",
        families=ASSISTANTS,
        owns=lambda _name, _layers: True,
        signature=("pre_projection.weight", "post_projection.weight"),
        prefix="",
        expected=_assistant,
        aliases=("embed_tokens",),
    ),
    Layout(
        name="gemma4_assistant_beside",
        kind="assistant",
        families=TARGETS,
        owns=under("mtp."),
        signature=("mtp.pre_projection.weight", "mtp.post_projection.weight"),
        expected=_beside_body,
        problems=_beside_problems,
        aliases=("embed_tokens",),
    ),
    Layout(
        name="gemma4_mtp",
        kind="prefix",
        families=TARGETS,
        owns=under("mtp."),
        unsupported="its mtp.* tensors are not those of a Gemma 4 assistant, no other head of this family is known",
    ),
)
