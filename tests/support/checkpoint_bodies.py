"""Random bodies under the names and shapes their families publish: mlx-lm's own parameters, put back into that layout.

The inverse of what mlx-lm's classes do on loading: experts are numbered, latent projections joined, convolutions
raw, zero-centred norms less one. Values are exact in bfloat16 in either convention.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
from mtplxd.platform.mlx import tree
from support.checkpoint_files import to_bfloat16

Config = dict[str, Any]
Arrays = dict[str, np.ndarray]

ZERO_CENTRED = frozenset({"qwen3_next", "qwen3_5", "qwen3_5_moe", "step3p5"})
_QWEN_NORMS = ("input_layernorm", "post_attention_layernorm", "model.norm", "q_norm", "k_norm")
_STEP_NAMES = (
    (".mlp.switch_mlp.", ".moe."),
    (".mlp.gate.gate.", ".moe.gate."),
    (".mlp.gate.router_bias", ".moe.router_bias"),
    (".mlp.share_expert.", ".share_expert."),
)
_EXPERT_NAMES = {
    "nemotron_h": {"fc1": "up_proj", "fc2": "down_proj"},
    "minimax_m2": {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"},
}


def text_of(config: Config) -> Config:
    """The part of a config that describes the language model."""
    return config.get("text_config", config)


def body_values(config: Config, rng: np.random.Generator, *, easy: bool) -> Arrays:
    """mlx-lm's parameters of a body, by its names; norms are the factors they multiply with.

    `easy` bodies choose the next token mostly from the last one, so that a head can guess it.
    """
    from mlx_lm.utils import _get_classes

    model, args = _get_classes(copy.deepcopy(config))
    parameters = tree.tree_flatten(model(args.from_dict(copy.deepcopy(config))).parameters())
    values = {name: value_of(name, tuple(array.shape), rng, easy=easy) for name, array in sorted(parameters)}
    return _untied(values) if text_of(config).get("tie_word_embeddings") else values


def _untied(values: Arrays) -> Arrays:
    """A tied body that would otherwise only repeat its last token: a small embedding, a final norm that makes up."""
    factors = {"embed_tokens.weight": 1 / 8, "model.norm.weight": 8.0}
    return {
        name: value * next((factor for end, factor in factors.items() if name.endswith(end)), 1.0)
        for name, value in values.items()
    }


def value_of(name: str, shape: tuple[int, ...], rng: np.random.Generator, *, easy: bool) -> np.ndarray:
    """A value of a sensible size for a parameter of this name, float32 and exact in bfloat16."""
    if "norm" in name and name.endswith("weight") and len(shape) == 1:
        wide = (-0.6, 0.9) if name.endswith(("model.norm.weight", "norm_f.weight")) else (-0.3, 0.3)
        return norm_factors(rng, shape, *wide)
    normal = rng.normal(0.0, 1.0, shape)
    if name.endswith("A_log"):
        value = rng.uniform(-1.0, 1.0, shape)
    elif name.endswith("layer_scalar"):
        value = rng.uniform(0.8, 1.2, shape)
    elif len(shape) == 1:
        value = 0.1 * normal + (1.0 if name.endswith((".D", "dt_bias")) else 0.0)
    else:
        value = normal * _spread(name, shape, easy=easy)
    return rounded(value)


def norm_factors(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """1 + w with w on a grid of 1/64, so that w and 1 + w are both exact in bfloat16."""
    return (1.0 + np.round(rng.uniform(low, high, shape) * 64) / 64).astype(np.float32)


def rounded(array: np.ndarray) -> np.ndarray:
    """To the nearest bfloat16, kept as float32."""
    return (to_bfloat16(array).astype(np.uint32) << 16).view(np.float32)


def _spread(name: str, shape: tuple[int, ...], *, easy: bool) -> float:
    if "embed" in name and "per_layer" not in name and "embed_q" not in name:
        return 1.0 if easy else 0.5
    if "lm_head" in name or name.endswith("shared_head.output.weight"):
        return 3.0 / np.sqrt(shape[-1])
    if "conv1d" in name:
        return 1.0 / np.sqrt(max(shape[1:]))
    leaving = re.search(r"(o_proj|out_proj|down_proj|fc2|w2)(\.weight)?$", name)
    return (0.12 if easy and leaving else 1.0) / np.sqrt(shape[-1])


def publish_body(config: Config, values: Arrays) -> Arrays:
    """The same body under the names of its published checkpoint."""
    family = config["model_type"]
    out: Arrays = {}
    for name, value in values.items():
        if family == "step3p5":
            out[_renamed(name)] = value
        elif ".switch_mlp." in name:
            out |= _numbered(family, name, value)
        elif "conv1d.weight" in name:
            out[name] = np.moveaxis(value, 2, 1)
        else:
            out[name] = value
    out = _joined_experts(_joined_latent(out)) if family == "qwen3_5_moe" else _joined_latent(out)
    if family in ZERO_CENTRED:
        out = {name: value - 1.0 if is_zero_centred(family, name) else value for name, value in out.items()}
    out |= _beside(config, out)
    return {_outer(name): value for name, value in out.items()}


def is_zero_centred(family: str, name: str) -> bool:
    """Whether this body's norm is stored less one."""
    if family == "step3p5":
        return "norm" in name and name.endswith(".weight")
    return name.endswith(tuple(f"{norm}.weight" for norm in _QWEN_NORMS))


def _renamed(name: str) -> str:
    for loaded, published in _STEP_NAMES:
        name = name.replace(loaded, published)
    return name


def _numbered(family: str, name: str, value: np.ndarray) -> Arrays:
    before, projection = name.split(".switch_mlp.")
    projection = projection.removesuffix(".weight")
    published = _EXPERT_NAMES.get(family, {}).get(projection, projection)
    return {f"{before}.experts.{e}.{published}.weight": value[e] for e in range(len(value))}


def _joined_latent(values: Arrays) -> Arrays:
    """`embed_q` [n, rank, nope] and `unembed_out` [n, value, rank] as `kv_b_proj` [n · (nope + value), rank]."""
    out = dict(values)
    for name in [name for name in values if name.endswith("embed_q.weight")]:
        before = name.removesuffix("embed_q.weight")
        both = np.concatenate([out.pop(name).swapaxes(1, 2), out.pop(f"{before}unembed_out.weight")], axis=1)
        out[f"{before}kv_b_proj.weight"] = both.reshape(-1, both.shape[-1])
    return out


def _joined_experts(values: Arrays) -> Arrays:
    """Numbered experts as two arrays: gate over up, and down."""
    out = dict(values)
    for before in sorted({name.split(".experts.")[0] for name in values if ".experts." in name}):
        count = sum(name.startswith(f"{before}.experts.") for name in values) // 3

        def stacked(projection: str, at: str = before, experts: int = count) -> np.ndarray:
            return np.stack([out.pop(f"{at}.experts.{e}.{projection}.weight") for e in range(experts)])

        out[f"{before}.experts.gate_up_proj"] = np.concatenate(
            [stacked("gate_proj"), stacked("up_proj")], axis=1
        )
        out[f"{before}.experts.down_proj"] = stacked("down_proj")
    return out


def _beside(config: Config, published: Arrays) -> Arrays:
    """Tensors of the published body that a text model has no use for."""
    family = config["model_type"]
    if family in ("qwen3_5", "qwen3_5_moe"):
        return {"model.visual.patch_embed.proj.weight": np.zeros((8, 4), np.float32)}
    if family == "gemma4":
        return {"model.vision_tower.patch_embedder.weight": np.zeros((8, 4), np.float32)}
    if family == "ernie4_5_moe":
        gates = [name for name in published if name.endswith("mlp.gate.weight")]
        bias = np.zeros((1, config["moe_num_experts"]), np.float32)
        return {name.replace("gate.weight", "moe_statics.e_score_correction_bias"): bias for name in gates}
    return {}


def _outer(name: str) -> str:
    if name.startswith("language_model.model."):
        return "model.language_model." + name.removeprefix("language_model.model.")
    return name.removeprefix("language_model.")
