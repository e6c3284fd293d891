"""The key list of each published checkpoint's head: facts, written down apart from the product.

`RELEASES` names a config, its head's keys with shapes, and how many there must be. Packs made of them are sparse
files: headers of full size over data that takes no room on disk.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.published_configs import (
    DEEPSEEK,
    ERNIE,
    GEMMA_ASSISTANT,
    GLM_5,
    GLM_45,
    GLM_AIR,
    GLM_FLASH,
    LONGCAT,
    MIMO,
    MIMO_V2,
    NEMOTRON,
    NEMOTRON_SUPER,
    QWEN,
    QWEN_MOE,
    QWEN_NEXT,
    STEP,
    V32,
    Config,
)

Keys = dict[str, tuple[int, ...]]

_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U32": 4, "I64": 8, "I32": 4, "U8": 1}


def scaled(keys: Iterable[str]) -> Callable[[Keys], Keys]:
    """Adds 128-block scales to the matrices whose names end so."""
    ends = tuple(f".{end}.weight" for end in keys)

    def add(plain: Keys) -> Keys:
        scales = {
            f"{name}_scale_inv": tuple(-(-side // 128) for side in shape)
            for name, shape in plain.items()
            if name.endswith(ends)
        }
        return plain | scales

    return add


_MLA = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")
fp8_deepseek = scaled((*_MLA, *_MLP, "wq_b", "wk"))
fp8_longcat = scaled((*_MLA, *_MLP, "eh_proj"))
fp8_mimo_v2 = scaled(("q_proj", "k_proj", "v_proj", "qkv_proj", *_MLP))
fp8_experts = scaled(_MLP)


def mlp(at: str, hidden: int, width: int) -> Keys:
    return {
        f"{at}gate_proj.weight": (width, hidden),
        f"{at}up_proj.weight": (width, hidden),
        f"{at}down_proj.weight": (hidden, width),
    }


def vectors(at: str, width: int, names: str) -> Keys:
    return {f"{at}{name}.weight": (width,) for name in names.split()}


def mla(at: str, c: Config, *, indexer: bool = False) -> Keys:
    hidden, heads, rank, low = (
        c[n] for n in ("hidden_size", "num_attention_heads", "kv_lora_rank", "q_lora_rank")
    )
    rope, nope, value = c["qk_rope_head_dim"], c["qk_nope_head_dim"], c["v_head_dim"]
    keys: Keys = {
        f"{at}q_a_proj.weight": (low, hidden),
        f"{at}q_a_layernorm.weight": (low,),
        f"{at}q_b_proj.weight": (heads * (nope + rope), low),
        f"{at}kv_a_proj_with_mqa.weight": (rank + rope, hidden),
        f"{at}kv_a_layernorm.weight": (rank,),
        f"{at}kv_b_proj.weight": (heads * (nope + value), rank),
        f"{at}o_proj.weight": (hidden, heads * value),
    }
    if indexer:
        dim = c["index_head_dim"]
        keys |= {
            f"{at}indexer.wq_b.weight": (c["index_n_heads"] * dim, low),
            f"{at}indexer.wk.weight": (dim, hidden),
            f"{at}indexer.k_norm.weight": (dim,),
            f"{at}indexer.k_norm.bias": (dim,),
            f"{at}indexer.weights_proj.weight": (c["index_n_heads"], hidden),
        }
    return keys


def _gqa(at: str, hidden: int, heads: int, groups: int, dim: int, *, bias: bool = False) -> Keys:
    rows = {"q_proj": heads * dim, "k_proj": groups * dim, "v_proj": groups * dim}
    keys: Keys = {f"{at}{name}.weight": (wide, hidden) for name, wide in rows.items()}
    if bias:
        keys |= {f"{at}{name}.bias": (wide,) for name, wide in rows.items()}
    return keys | {f"{at}o_proj.weight": (hidden, heads * dim)}


def appended(c: Config, *, copies: bool = True, indexer: bool = False) -> Keys:
    """DeepSeek and GLM: one further layer after the body's, with or without copies of the body's matrices."""
    hidden, width, at = (
        c["hidden_size"],
        c["moe_intermediate_size"],
        f"model.layers.{c['num_hidden_layers']}.",
    )
    keys = vectors(at, hidden, "enorm hnorm shared_head.norm input_layernorm post_attention_layernorm")
    keys[f"{at}eh_proj.weight"] = (hidden, 2 * hidden)
    if copies:
        both = (c["vocab_size"], hidden)
        keys |= {f"{at}embed_tokens.weight": both, f"{at}shared_head.head.weight": both}
    if "kv_lora_rank" in c:
        keys |= mla(f"{at}self_attn.", c, indexer=indexer)
    else:
        counts = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        keys |= _gqa(f"{at}self_attn.", hidden, *counts, bias=c["attention_bias"])
        if c["use_qk_norm"]:
            keys |= vectors(f"{at}self_attn.", c["head_dim"], "q_norm k_norm")
    keys[f"{at}mlp.gate.weight"] = (c["n_routed_experts"], hidden)
    keys[f"{at}mlp.gate.e_score_correction_bias"] = (c["n_routed_experts"],)
    for expert in range(c["n_routed_experts"]):
        keys |= mlp(f"{at}mlp.experts.{expert}.", hidden, width)
    return keys | mlp(f"{at}mlp.shared_experts.", hidden, width * c["n_shared_experts"])


def qwen(config: Config, *, fused: bool = True) -> Keys:
    """Qwen3-Next and 3.5: `mtp.*`."""
    c = config.get("text_config", config)
    hidden, dim, at = c["hidden_size"], c["head_dim"], "mtp.layers.0."
    keys = vectors("mtp.", hidden, "norm pre_fc_norm_embedding pre_fc_norm_hidden")
    keys["mtp.fc.weight"] = (hidden, 2 * hidden)
    keys |= vectors(at, hidden, "input_layernorm post_attention_layernorm")
    keys |= _gqa(f"{at}self_attn.", hidden, c["num_attention_heads"], c["num_key_value_heads"], dim)
    keys[f"{at}self_attn.q_proj.weight"] = (2 * c["num_attention_heads"] * dim, hidden)
    keys |= vectors(f"{at}self_attn.", dim, "q_norm k_norm")
    if not (experts := c.get("num_experts")):
        return keys | mlp(f"{at}mlp.", hidden, c["intermediate_size"])
    width = c["moe_intermediate_size"]
    keys |= {f"{at}mlp.gate.weight": (experts, hidden), f"{at}mlp.shared_expert_gate.weight": (1, hidden)}
    keys |= mlp(f"{at}mlp.shared_expert.", hidden, c["shared_expert_intermediate_size"])
    if fused:
        keys[f"{at}mlp.experts.gate_up_proj"] = (experts, 2 * width, hidden)
        keys[f"{at}mlp.experts.down_proj"] = (experts, hidden, width)
        return keys
    for expert in range(experts):
        keys |= mlp(f"{at}mlp.experts.{expert}.", hidden, width)
    return keys


def mimo(c: Config) -> Keys:
    hidden, at = c["hidden_size"], "model.mtp_layers.0."
    names = "token_layernorm hidden_layernorm final_layernorm input_layernorm post_attention_layernorm"
    keys = vectors(at, hidden, names) | {f"{at}input_proj.weight": (hidden, 2 * hidden)}
    counts = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    return (
        keys
        | _gqa(f"{at}self_attn.", hidden, *counts, bias=True)
        | mlp(f"{at}mlp.", hidden, c["intermediate_size"])
    )


def mimo_v2(c: Config, *, layers: int = 3, fused: bool = False) -> Keys:
    hidden, heads, groups = c["hidden_size"], c["swa_num_attention_heads"], c["swa_num_key_value_heads"]
    dim, value = c["swa_head_dim"], c["swa_v_head_dim"]
    rows = {"q_proj": heads * dim, "k_proj": groups * dim, "v_proj": groups * value}
    rows = {"qkv_proj": sum(rows.values())} if fused else rows
    keys: Keys = {}
    for layer in range(layers):
        at = f"model.mtp.layers.{layer}."
        keys |= vectors(at, hidden, "enorm hnorm final_layernorm input_layernorm pre_mlp_layernorm")
        keys[f"{at}eh_proj.weight"] = (hidden, 2 * hidden)
        keys |= {f"{at}self_attn.{name}.weight": (wide, hidden) for name, wide in rows.items()}
        keys[f"{at}self_attn.o_proj.weight"] = (hidden, heads * value)
        keys[f"{at}self_attn.attention_sink_bias"] = (heads,)
        keys |= mlp(f"{at}mlp.", hidden, c["intermediate_size"])
    return keys


def nemotron(c: Config) -> Keys:
    hidden, experts, width = c["hidden_size"], c["n_routed_experts"], c["moe_intermediate_size"]
    latent, shared = c.get("moe_latent_size"), c["moe_shared_expert_intermediate_size"]
    inner, one, two = latent or hidden, "mtp.layers.0.", "mtp.layers.1."
    keys = vectors(one, hidden, "norm enorm hnorm") | vectors(two, hidden, "norm final_layernorm")
    keys[f"{one}eh_proj.weight"] = (hidden, 2 * hidden)
    counts = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    keys |= _gqa(f"{one}mixer.", hidden, *counts)
    keys |= {
        f"{two}mixer.gate.weight": (experts, hidden),
        f"{two}mixer.gate.e_score_correction_bias": (experts,),
    }
    if latent:
        keys |= {f"{two}mixer.fc1_latent_proj.weight": (latent, hidden)}
        keys |= {f"{two}mixer.fc2_latent_proj.weight": (hidden, latent)}
    for expert in range(experts):
        keys[f"{two}mixer.experts.{expert}.up_proj.weight"] = (width, inner)
        keys[f"{two}mixer.experts.{expert}.down_proj.weight"] = (inner, width)
    keys[f"{two}mixer.shared_experts.up_proj.weight"] = (shared, hidden)
    return keys | {f"{two}mixer.shared_experts.down_proj.weight": (hidden, shared)}


def ernie(c: Config) -> Keys:
    hidden, heads, at = c["hidden_size"], c["num_attention_heads"], "model.mtp_block.0."
    keys = vectors("model.", hidden, "mtp_emb_norm.0 mtp_hidden_norm.0")
    keys["model.mtp_linear_proj.0.weight"] = (hidden, 2 * hidden)
    keys |= vectors(at, hidden, "input_layernorm post_attention_layernorm")
    keys |= _gqa(f"{at}self_attn.", hidden, heads, c["num_key_value_heads"], hidden // heads)
    return keys | mlp(f"{at}mlp.", hidden, c["intermediate_size"])


def longcat(c: Config) -> Keys:
    hidden, at = c["hidden_size"], "model.mtp.layers.0."
    keys: Keys = {
        "model.mtp.embed_tokens.weight": (c["vocab_size"], hidden),
        "model.mtp.norm.weight": (hidden,),
    }
    keys |= vectors(at, hidden, "enorm.m hnorm.m input_layernorm post_attention_layernorm")
    keys[f"{at}eh_proj.weight"] = (hidden, 2 * hidden)
    return keys | mla(f"{at}self_attn.", c) | mlp(f"{at}transformer_layer.mlp.", hidden, c["ffn_hidden_size"])


def step(c: Config) -> Keys:
    hidden, dim, other = c["hidden_size"], c["head_dim"], c["attention_other_setting"]
    names = "enorm hnorm input_layernorm post_attention_layernorm transformer.shared_head.norm"
    keys: Keys = {}
    for layer in range(c["num_hidden_layers"], c["num_hidden_layers"] + 3):
        at = f"model.layers.{layer}."
        keys |= vectors(at, hidden, names) | vectors(f"{at}self_attn.", dim, "q_norm k_norm")
        keys[f"{at}eh_proj.weight"] = (hidden, 2 * hidden)
        keys[f"{at}transformer.shared_head.output.weight"] = (c["vocab_size"], hidden)
        heads = other["num_attention_heads"]
        keys |= _gqa(f"{at}self_attn.", hidden, heads, other["num_attention_groups"], dim)
        keys[f"{at}self_attn.g_proj.weight"] = (heads, hidden)
        keys |= mlp(f"{at}mlp.", hidden, c["intermediate_size"])
    return keys


def gemma_assistant(c: Config) -> Keys:
    text, backbone = c["text_config"], c["backbone_hidden_size"]
    hidden, vocab, heads = text["hidden_size"], text["vocab_size"], text["num_attention_heads"]
    keys: Keys = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    keys |= {"pre_projection.weight": (hidden, 2 * backbone), "post_projection.weight": (backbone, hidden)}
    for layer, kind in enumerate(text["layer_types"]):
        at, dim = f"model.layers.{layer}.", text["global_head_dim" if kind.startswith("full") else "head_dim"]
        names = (
            "input_layernorm post_attention_layernorm pre_feedforward_layernorm post_feedforward_layernorm"
        )
        keys |= vectors(at, hidden, names) | vectors(f"{at}self_attn.", dim, "q_norm")
        keys[f"{at}layer_scalar"] = (1,)
        keys |= {f"{at}self_attn.q_proj.weight": (heads * dim, hidden)}
        keys |= {f"{at}self_attn.o_proj.weight": (hidden, heads * dim)}
        keys |= mlp(f"{at}mlp.", hidden, text["intermediate_size"])
    if c["use_ordered_embeddings"]:
        keys["masked_embedding.centroids.weight"] = (c["num_centroids"], hidden)
        keys["masked_embedding.token_ordering"] = (vocab,)
    return keys


@dataclass(frozen=True)
class Release:
    """A published checkpoint's head: what must be said of it."""

    name: str
    config: Config
    keys: Keys
    count: int
    layout: str
    prefix: str
    layers: int = 1
    depth_max: int = 8


def _releases() -> tuple[Release, ...]:
    glm_46 = appended(GLM_45, copies=False)
    gemma_large = {
        **GEMMA_ASSISTANT,
        "backbone_hidden_size": 5376,
        "use_ordered_embeddings": False,
        "text_config": {**GEMMA_ASSISTANT["text_config"], "hidden_size": 1024, "intermediate_size": 8192},
    }
    deep = "model.layers.61."
    v3 = fp8_deepseek(appended(DEEPSEEK))
    return (
        Release("DeepSeek-V3.1", DEEPSEEK, v3, 1564, "appended", deep),
        Release("DeepSeek-V3 bf16", DEEPSEEK, appended(DEEPSEEK), 788, "appended", deep),
        Release("DeepSeek-V3.2-Exp", V32, fp8_deepseek(appended(V32, indexer=True)), 1571, "appended", deep),
        Release("GLM-4.5", GLM_45, appended(GLM_45), 502, "appended", "model.layers.92."),
        Release("GLM-4.6", GLM_45, glm_46, 500, "appended", "model.layers.92."),
        Release("GLM-4.5-Air", GLM_AIR, appended(GLM_AIR), 404, "appended", "model.layers.46."),
        Release("GLM-4.7-Flash", GLM_FLASH, appended(GLM_FLASH), 212, "appended", "model.layers.47."),
        Release(
            "GLM-5", GLM_5, appended(GLM_5, copies=False, indexer=True), 791, "appended", "model.layers.78."
        ),
        Release("MiMo-7B", MIMO, mimo(MIMO), 16, "namespace", "model.mtp_layers.", 1, 1),
        Release("MiMo-V2-Flash", MIMO_V2, fp8_mimo_v2(mimo_v2(MIMO_V2)), 60, "namespace", "model.mtp.", 3, 3),
        Release(
            "MiMo-V2.5-Pro",
            MIMO_V2,
            fp8_mimo_v2(mimo_v2(MIMO_V2, fused=True)),
            48,
            "namespace",
            "model.mtp.",
            3,
            3,
        ),
        Release("Qwen3.6 dense", QWEN, qwen(QWEN), 15, "prefix", "mtp."),
        Release("Qwen3.6 MoE", QWEN_MOE, qwen(QWEN_MOE), 19, "prefix", "mtp."),
        Release(
            "Qwen3.6 MoE fp8",
            QWEN_MOE,
            fp8_experts(qwen(QWEN_MOE, fused=False)),
            17 + 6 * 256 + 3,
            "prefix",
            "mtp.",
        ),
        Release("Qwen3-Next", QWEN_NEXT, qwen(QWEN_NEXT, fused=False), 1553, "prefix", "mtp."),
        Release("Nemotron-3-Nano", NEMOTRON, nemotron(NEMOTRON), 270, "prefix", "mtp."),
        Release("Nemotron-3-Super", NEMOTRON_SUPER, nemotron(NEMOTRON_SUPER), 1040, "prefix", "mtp."),
        Release("Ernie-4.5-21B", ERNIE, ernie(ERNIE), 12, "namespace", "model.mtp_"),
        Release("LongCat-Flash", LONGCAT, longcat(LONGCAT), 17, "namespace", "model.mtp."),
        Release("LongCat-Flash fp8", LONGCAT, fp8_longcat(longcat(LONGCAT)), 26, "namespace", "model.mtp."),
        Release("Step-3.5-Flash", STEP, step(STEP), 51, "appended", "model.layers.45.", 3, 3),
        Release(
            "Gemma 4 E2B assistant", GEMMA_ASSISTANT, gemma_assistant(GEMMA_ASSISTANT), 50, "assistant", ""
        ),
        Release("Gemma 4 31B assistant", gemma_large, gemma_assistant(gemma_large), 48, "assistant", ""),
    )


RELEASES = _releases()


def release(name: str) -> Release:
    return next(one for one in RELEASES if one.name == name)


def body_keys(config: Config) -> Keys:
    """A few tensors of the body, as a raw checkpoint of the family names them; none of an assistant's."""
    c = config.get("text_config", config)
    if config["model_type"].endswith("assistant"):
        return {}
    hidden, vocab = c["hidden_size"], c["vocab_size"]
    if config["model_type"] == "nemotron_h":
        names = ("backbone.embeddings.weight", "backbone.norm_f.weight", "backbone.layers.0.norm.weight")
    else:
        at = "model.language_model." if config["model_type"].startswith("qwen3_5") else "model."
        names = (f"{at}embed_tokens.weight", f"{at}norm.weight", f"{at}layers.0.input_layernorm.weight")
    keys: Keys = {names[0]: (vocab, hidden), names[1]: (hidden,), names[2]: (hidden,)}
    return keys if c.get("tie_word_embeddings") else keys | {"lm_head.weight": (vocab, hidden)}


def dtype_of(name: str, keys: Mapping[str, tuple[int, ...]]) -> str:
    """As published: scaled matrices are FP8, scales and router biases float32, orderings int64, the rest bfloat16."""
    if name.endswith(("_scale_inv", "e_score_correction_bias")):
        return "F32"
    if name.endswith("token_ordering"):
        return "I64"
    return "F8_E4M3" if f"{name}_scale_inv" in keys else "BF16"


def write_sparse(
    path: Path, keys: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """A safetensors file with this header whose data is a hole: it reads as zeros."""
    header: dict[str, Any] = {"__metadata__": dict(metadata or {"format": "pt"})}
    at = 0
    for name, shape in keys.items():
        dtype = (dtypes or {}).get(name) or dtype_of(name, keys)
        end = at + math.prod(shape) * _BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)


def write_release(
    folder: Path, config: Config, head: Keys, *, sidecar: str = "", dtypes: Mapping[str, str] | None = None
) -> Path:
    """A pack of a body's few tensors and a head: in the last of two shards with an index, or in its own file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    body = body_keys(config)
    if sidecar or not body:
        write_sparse(folder / "model.safetensors", body or head, dtypes)
        if sidecar:
            write_sparse(folder / sidecar, head, dtypes)
        return folder
    first, second = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    write_sparse(folder / first, body)
    write_sparse(folder / second, head, dtypes)
    index = {"weight_map": {**dict.fromkeys(body, first), **dict.fromkeys(head, second)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
