"""DeepSeek-V3.1 as published, 91,991 tensors in 163 files, as sparse files: headers of full size over holes."""

from __future__ import annotations

import json
from pathlib import Path

from support.published_configs import DEEPSEEK
from support.published_keys import Keys, dtype_of, fp8_deepseek, mla, mlp, release, vectors, write_sparse

TENSORS, SHARDS = 91_991, 163


def write_deepseek(folder: Path) -> Path:
    """The whole checkpoint: config, index and every shard. About 20 MB on disk, 1.3 TB by their sizes."""
    keys = _body() | release("DeepSeek-V3.1").keys
    assert len(keys) == TENSORS
    dtypes = {name: dtype_of(name, keys) for name in keys}
    names = list(keys)
    size = -(-len(names) // SHARDS)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(DEEPSEEK))
    shards: dict[str, str] = {}
    for at in range(SHARDS):
        file = f"model-{at + 1:05}-of-{SHARDS:06}.safetensors"
        part = {name: keys[name] for name in names[at * size : (at + 1) * size]}
        write_sparse(folder / file, part, dtypes)
        shards |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    return folder


def _body() -> Keys:
    hidden, vocab = DEEPSEEK["hidden_size"], DEEPSEEK["vocab_size"]
    keys: Keys = dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), (vocab, hidden))
    keys["model.norm.weight"] = (hidden,)
    for layer in range(DEEPSEEK["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        keys |= vectors(at, hidden, "input_layernorm post_attention_layernorm") | mla(
            f"{at}self_attn.", DEEPSEEK
        )
        keys |= (
            mlp(f"{at}mlp.", hidden, DEEPSEEK["intermediate_size"]) if layer < 3 else _experts(f"{at}mlp.")
        )
    return fp8_deepseek(keys)


def _experts(at: str) -> Keys:
    hidden, width, experts = (
        DEEPSEEK[n] for n in ("hidden_size", "moe_intermediate_size", "n_routed_experts")
    )
    keys: Keys = {f"{at}gate.weight": (experts, hidden), f"{at}gate.e_score_correction_bias": (experts,)}
    for expert in range(experts):
        keys |= mlp(f"{at}experts.{expert}.", hidden, width)
    return keys | mlp(f"{at}shared_experts.", hidden, width)
