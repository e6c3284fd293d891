"""Small bodies of further mlx-lm classes, as mlx-lm saves them, and what mlx-lm itself makes of any body."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from mtplxd.platform.mlx import Array, mx
from support.checkpoint_bodies import body_values
from support.checkpoint_files import store, write_tensors
from support.tiny_configs import VOCAB, Config
from support.tiny_pack import write_tokenizer

_COMMON: Config = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip
_SLIDING = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2}
_KIMI: Config = {
    **_COMMON, "model_type": "kimi_linear", "num_hidden_layers": 2, "num_key_value_heads": 4,
    "linear_attn_config": {
        "kda_layers": [1], "full_attn_layers": [2], "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4,
    },
    "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 1, "moe_intermediate_size": 32,
    "first_k_dense_replace": 1, "num_nextn_predict_layers": 0,
}  # fmt: skip

OTHERS: dict[str, Config] = {
    "cohere2": {
        **_COMMON, "model_type": "cohere2", "logit_scale": 0.25, "sliding_window": 8, "sliding_window_pattern": 2,
        "layer_norm_eps": 1e-5, "tie_word_embeddings": True,
    },
    "exaone_moe": {
        **_COMMON, "model_type": "exaone_moe", "num_hidden_layers": 2, "moe_intermediate_size": 32,
        "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"], "is_moe_layer": [False, True],
    },
    "falcon_h1": {
        **_COMMON, "model_type": "falcon_h1", "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16,
        "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_chunk_size": 16, "mamba_expand": 1,
    },
    "gpt_oss": {
        **_COMMON, **_SLIDING, "model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2,
    },
    "granite": {
        **_COMMON, "model_type": "granite", "logits_scaling": 4.0, "attention_multiplier": 0.2,
        "embedding_multiplier": 12.0, "residual_multiplier": 0.5, "attention_bias": False, "mlp_bias": False,
    },
    "kimi_k3": {"model_type": "kimi_k3", "max_position_embeddings": 512, "text_config": _KIMI},
    "lfm2": {
        **_COMMON, "model_type": "lfm2", "norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3, "block_dim": 64,
        "block_ff_dim": 96, "block_multiple_of": 8, "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False, "full_attn_idxs": [1, 3],
    },
    "mistral3": {
        "model_type": "mistral3", "max_position_embeddings": 512,
        "text_config": {**_COMMON, "model_type": "mistral"},
    },
    "olmo3": {**_COMMON, **_SLIDING, "model_type": "olmo3"},
}  # fmt: skip
"""Classes beside those of the families with a head: soft-caps, scales, sinks, wraps, and each kind of cache."""

CANNOT_GO_BACK: Config = {
    "model_type": "llama4", "max_position_embeddings": 512,
    "text_config": {
        **_COMMON, "model_type": "llama4_text", "attention_bias": False, "attention_chunk_size": 8,
        "interleave_moe_layer_step": 2, "intermediate_size_mlp": 96, "num_experts_per_tok": 1,
        "num_local_experts": 2, "rope_scaling": None, "use_qk_norm": True,
    },
}  # fmt: skip
"""Its cache is of a class that has no counterpart."""


def write_body(folder: Path, config: Config, seed: int = 0) -> Path:
    """A body without a head, by mlx-lm's own names; the same bytes for the same arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    values = body_values(config, np.random.default_rng(seed), easy=False)
    write_tensors(
        folder / "model.safetensors", {name: store(array, "BF16") for name, array in values.items()}
    )
    return folder


def stock_model(folder: Path) -> Any:
    """A folder that mlx-lm can load by itself, as it loads it, in float32."""
    from mlx_lm.utils import load_model

    model, _ = load_model(folder)
    model.set_dtype(mx.float32)
    return model


def stock_logits(model: Any, parts: list[list[int]]) -> list[Array]:
    """Logits [L, V] of forwards over these tokens, one after the other, on mlx-lm's own caches."""
    from mlx_lm.models.cache import make_prompt_cache

    cache, found = make_prompt_cache(model), []
    for tokens in parts:
        found.append(model(mx.array([tokens]), cache=cache)[0])
        mx.eval(found[-1])
    return found
