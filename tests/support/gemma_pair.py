"""Tiny Gemma 4 targets and assistants in the published layout, alone and as pairs. numpy only; same bytes each time.

The targets' last block decides nearly everything from the current token, and the assistants imitate it from the
token they are given, with some noise: their drafts are often, not always, right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from support.checkpoint_files import read_tensors, store, write_tensors
from support.tiny_pack import VOCAB, write_tokenizer

Config = dict[str, Any]
Tensors = dict[str, np.ndarray]

WINDOW = 8
ROPE = {
    "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
}
SHARED: Config = {
    "model_type": "gemma4_text", "vocab_size": VOCAB, "head_dim": 16, "global_head_dim": 32,
    "rms_norm_eps": 1e-6, "sliding_window": WINDOW, "max_position_embeddings": 2048, "rope_parameters": ROPE,
    "tie_word_embeddings": True, "num_attention_heads": 4,
}  # fmt: skip
SMALL: Config = {
    **SHARED, "hidden_size": 64, "num_hidden_layers": 6, "intermediate_size": 96, "num_key_value_heads": 1,
    "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB,
    "use_double_wide_mlp": True, "final_logit_softcapping": 30.0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
}  # fmt: skip
"""Like E2B and E4B: inputs per layer, further layers that share keys and values, wider there."""
LARGE: Config = {
    **SHARED, "hidden_size": 64, "num_hidden_layers": 6, "intermediate_size": 192, "num_key_value_heads": 2,
    "num_global_key_value_heads": 1, "attention_k_eq_v": True, "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0, "use_double_wide_mlp": False, "final_logit_softcapping": 30.0,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
}  # fmt: skip
"""Like 31B: every layer has keys of its own, full layers use them as values too."""
EXPERTS: Config = {
    **LARGE, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 48,
}  # fmt: skip
"""Like 26B-A4B."""
TARGETS = {"small": SMALL, "large": LARGE, "experts": EXPERTS}


def target_config(size: str, model_type: str = "gemma4", **text_changes: Any) -> Config:
    text = {**TARGETS[size], **text_changes}
    return {"model_type": model_type, "vocab_size": VOCAB, "text_config": text, "eos_token_id": 2}


def assistant_config(size: str, model_type: str = "gemma4_assistant", **text_changes: Any) -> Config:
    """An assistant for that target: ordered embeddings for the small one, as published."""
    text = {
        **SHARED, "hidden_size": 64, "num_hidden_layers": 4, "num_kv_shared_layers": 4, "intermediate_size": 192,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0, "num_key_value_heads": 1, "use_double_wide_mlp": False,
        "enable_moe_block": False,
    }  # fmt: skip
    own = {
        "model_type": model_type, "backbone_hidden_size": 64, "use_ordered_embeddings": size == "small",
        "num_centroids": 20, "centroid_intermediate_top_k": 6, "tie_word_embeddings": True,
    }  # fmt: skip
    return {**own, "text_config": {**text, **text_changes}}


def flat(config: Config) -> Config:
    """A config with its text config laid over it."""
    return {**config, **config["text_config"]}


def target_weights(config: Config, rng: np.random.Generator) -> Tensors:
    """The language model as published, and tensors that nobody needs: of senses, and keys of layers that share them."""
    c, at = config["text_config"], "model.language_model."
    hidden = c["hidden_size"]
    tensors = {
        f"{at}embed_tokens.weight": rng.normal(0.0, 0.2, (VOCAB, hidden)),
        f"{at}norm.weight": _norm(rng, hidden),
        "model.vision_tower.patch.weight": rng.normal(0.0, 1.0, (4, 4)),
        "model.embed_audio.embedding_projection.weight": rng.normal(0.0, 1.0, (4, 4)),
    }
    if inputs := c["hidden_size_per_layer_input"]:
        width = inputs * c["num_hidden_layers"]
        tensors[f"{at}embed_tokens_per_layer.weight"] = rng.normal(0.0, 0.3, (VOCAB, width))
        tensors[f"{at}per_layer_model_projection.weight"] = _matrix(rng, width, hidden)
        tensors[f"{at}per_layer_projection_norm.weight"] = _norm(rng, inputs)
    for layer in range(c["num_hidden_layers"]):
        tensors |= _target_block(f"{at}layers.{layer}.", c, layer, rng)
    return tensors


def _target_block(at: str, c: Config, layer: int, rng: np.random.Generator) -> Tensors:
    shared = layer >= c["num_hidden_layers"] - c["num_kv_shared_layers"]
    last = layer == c["num_hidden_layers"] - 1
    hidden, full = c["hidden_size"], c["layer_types"][layer] == "full_attention"
    width = c["intermediate_size"] * (2 if shared and c["use_double_wide_mlp"] else 1)
    tensors = _block(at, c, full=full, width=width, loud=6.0 if last else 0.2, rng=rng)
    dim = c["global_head_dim" if full else "head_dim"]
    same = c.get("attention_k_eq_v") and full
    groups = c["num_global_key_value_heads"] if same else c["num_key_value_heads"]
    for name in ("k_proj",) if same else ("k_proj", "v_proj"):
        tensors[f"{at}self_attn.{name}.weight"] = _matrix(rng, groups * dim, hidden)
    tensors[f"{at}self_attn.k_norm.weight"] = _norm(rng, dim)
    if inputs := c["hidden_size_per_layer_input"]:
        tensors[f"{at}per_layer_input_gate.weight"] = _matrix(rng, inputs, hidden)
        tensors[f"{at}per_layer_projection.weight"] = _matrix(rng, hidden, inputs)
        tensors[f"{at}post_per_layer_input_norm.weight"] = 0.1 * _norm(rng, hidden)
    if c.get("enable_moe_block"):
        experts, inner = c["num_experts"], c["moe_intermediate_size"]
        tensors |= {
            f"{at}router.proj.weight": _matrix(rng, experts, hidden),
            f"{at}router.scale": _norm(rng, hidden),
            f"{at}router.per_expert_scale": _norm(rng, experts),
            f"{at}experts.gate_up_proj": rng.normal(0.0, hidden**-0.5, (experts, 2 * inner, hidden)),
            f"{at}experts.down_proj": rng.normal(0.0, inner**-0.5, (experts, hidden, inner)),
            f"{at}post_feedforward_layernorm_1.weight": _norm(rng, hidden),
            f"{at}post_feedforward_layernorm_2.weight": 0.3 * _norm(rng, hidden),
            f"{at}pre_feedforward_layernorm_2.weight": _norm(rng, hidden),
        }
    return tensors


def assistant_weights(config: Config, target: Config, body: Tensors, rng: np.random.Generator) -> Tensors:
    """An assistant that knows the target's table and, in its last block, nearly the target's last MLP."""
    c, outer = flat(config), target["text_config"]
    hidden, backbone = c["hidden_size"], c["backbone_hidden_size"]
    given = np.concatenate([np.eye(hidden, backbone), 0.02 * _matrix(rng, hidden, backbone)], axis=1)
    tensors = {
        "model.embed_tokens.weight": body["model.language_model.embed_tokens.weight"][:, :hidden],
        "model.norm.weight": body["model.language_model.norm.weight"][:hidden],
        "pre_projection.weight": given,
        "post_projection.weight": _matrix(rng, backbone, hidden),
    }
    layers = len(c["layer_types"])
    for layer, kind in enumerate(c["layer_types"]):
        full, last = kind == "full_attention", layer == layers - 1
        loud = 6.0 if last else 0.1
        tensors |= _block(
            f"model.layers.{layer}.", c, full=full, width=c["intermediate_size"], loud=loud, rng=rng
        )
    source = f"model.language_model.layers.{outer['num_hidden_layers'] - 1}."
    for name in ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "pre_feedforward_layernorm",
                 "post_feedforward_layernorm"):  # fmt: skip
        weight = body[f"{source}{name}.weight"]
        noise = rng.normal(0.0, 0.05 * weight.std(), weight.shape)
        if weight.shape == tensors[f"model.layers.{layers - 1}.{name}.weight"].shape:
            tensors[f"model.layers.{layers - 1}.{name}.weight"] = weight + noise
    if c["use_ordered_embeddings"]:
        clusters = c["num_centroids"]
        order = rng.permutation(VOCAB)
        table = tensors["model.embed_tokens.weight"][order].reshape(clusters, -1, hidden)
        tensors["masked_embedding.centroids.weight"] = table.mean(axis=1)
        tensors["masked_embedding.token_ordering"] = order.astype(np.int64)
    return tensors


def _block(at: str, c: Config, *, full: bool, width: int, loud: float, rng: np.random.Generator) -> Tensors:
    """What blocks of targets and assistants have in common; the norms behind decide how much a block says."""
    hidden, dim = c["hidden_size"], c["global_head_dim" if full else "head_dim"]
    queries = c["num_attention_heads"] * dim
    return {
        f"{at}input_layernorm.weight": _norm(rng, hidden),
        f"{at}post_attention_layernorm.weight": 0.15 * _norm(rng, hidden),
        f"{at}pre_feedforward_layernorm.weight": _norm(rng, hidden),
        f"{at}post_feedforward_layernorm.weight": loud * _norm(rng, hidden),
        f"{at}layer_scalar": rng.uniform(0.8, 1.2, 1),
        f"{at}self_attn.q_proj.weight": _matrix(rng, queries, hidden),
        f"{at}self_attn.o_proj.weight": _matrix(rng, hidden, queries),
        f"{at}self_attn.q_norm.weight": _norm(rng, dim),
        f"{at}mlp.gate_proj.weight": _matrix(rng, width, hidden),
        f"{at}mlp.up_proj.weight": _matrix(rng, width, hidden),
        f"{at}mlp.down_proj.weight": _matrix(rng, hidden, width),
    }


def _matrix(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return rng.normal(0.0, columns**-0.5, (rows, columns))


def _norm(rng: np.random.Generator, width: int) -> np.ndarray:
    return rng.uniform(0.8, 1.2, width)


def write_model(folder: Path, config: Config, tensors: Mapping[str, np.ndarray]) -> Path:
    """Config, weights in float32 (ids as they are) and a tokenizer."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(
        folder / "model.safetensors", {name: store(array, "F32") for name, array in tensors.items()}
    )
    write_tokenizer(folder)
    return folder


def write_pair(
    folder: Path,
    size: str,
    *,
    seed: int = 0,
    unified: bool = False,
    target_text: Config | None = None,
    assistant_text: Config | None = None,
) -> Path:
    """A pair in `folder`, with changes to the text config of either."""
    rng = np.random.default_rng(seed)
    kind = "gemma4_unified" if unified else "gemma4"
    target = target_config(size, kind, **(target_text or {}))
    assistant = assistant_config(size, f"{kind}_assistant", **(assistant_text or {}))
    body = target_weights(target, rng)
    write_model(folder / "target", target, body)
    write_model(folder / "assistant", assistant, assistant_weights(assistant, target, body, rng))
    (folder / "mtplx_pair.json").write_text("{}")
    return folder


def write_beside(folder: Path, pair: Path) -> Path:
    """The same as one checkpoint: the assistant under `mtp.` in its target's file, without a config of its own.

    How many clusters are scored is in no tensor, so the target's config says it.
    """
    config, own = (json.loads((pair / part / "config.json").read_text()) for part in ("target", "assistant"))
    config["centroid_intermediate_top_k"] = own["centroid_intermediate_top_k"]
    under = {f"mtp.{name}": array for name, array in read_tensors(pair / "assistant").items()}
    return write_model(folder, config, read_tensors(pair / "target") | under)
