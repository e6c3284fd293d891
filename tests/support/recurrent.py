"""Random models of mlx-lm with recurrent layers, and what their state should be. The smallest that have such layers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from mtplxd.families.caches.state import StateCache
from mtplxd.platform.mlx import Array, mx, tree
from support.tiny_configs import TINY, VOCAB, Config

_COMMON: Config = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": True,
}  # fmt: skip
_KIMI: Config = {
    **_COMMON, "num_key_value_heads": 4, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 1,
    "moe_intermediate_size": 32, "first_k_dense_replace": 1, "model_max_length": 1024, "q_lora_rank": 24,
    "linear_attn_config": {
        "kda_layers": [1], "full_attn_layers": [2], "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4,
    },
}  # fmt: skip
_BAILING: Config = {
    **_COMMON, "num_key_value_heads": 4, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 32,
    "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "layer_group_size": 2, "group_norm_size": 2, "routed_scaling_factor": 2.5,
    "norm_topk_prob": True, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "q_lora_rank": 24,
}  # fmt: skip
_LFM: Config = {
    **_COMMON, "norm_eps": 1e-5, "conv_bias": False, "conv_L_cache": 3, "block_dim": 64, "block_multiple_of": 32,
    "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": False, "layer_types": ["conv", "full_attention"],
}  # fmt: skip
_MOE: Config = {
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}

CONFIGS: dict[str, Config] = {
    **{name: TINY[name] for name in ("qwen3_next", "qwen3_5", "qwen3_5_moe", "nemotron_h")},
    "olmo_hybrid": {
        **_COMMON, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "linear_allow_neg_eigval": True,
        "attention_bias": False, "layer_types": ["linear_attention", "full_attention"],
    },
    "kimi_linear": _KIMI,
    "kimi_k3": {"text_config": _KIMI},
    "bailing_moe_v3": {**_BAILING, "short_conv_kernel_size": 4},
    "bailing_hybrid": _BAILING,
    "bailing_moe_linear": {**_BAILING, "topk_group": 1, "score_function": "sigmoid"},
    "falcon_h1": {
        **_COMMON, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 2,
    },
    "granitemoehybrid": {
        **_COMMON, "attention_bias": False, "embedding_multiplier": 1.0, "attention_multiplier": 0.25,
        "logits_scaling": 1.0, "residual_multiplier": 1.0, "layer_types": ["mamba", "attention"],
        "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_proj_bias": False, "mamba_d_state": 16, "mamba_d_conv": 4,
        "mamba_n_groups": 1, "mamba_conv_bias": True, "shared_intermediate_size": 96,
    },
    "mamba2": {
        **_COMMON, "num_heads": 4, "head_dim": 16, "state_size": 16, "conv_kernel": 4, "n_groups": 1,
        "layer_norm_epsilon": 1e-5, "use_bias": False, "use_conv_bias": True, "time_step_limit": [0.0, 100.0],
        "time_step_rank": "auto",
    },
    "plamo2": {
        **_COMMON, "hidden_size_per_head": 16, "mamba_d_state": 16, "mamba_num_heads": 4, "num_hidden_layers": 4,
    },
    "jamba": {
        **_COMMON, "attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1, "expert_layer_period": 2,
        "mamba_d_conv": 4, "mamba_d_state": 8, "mamba_expand": 2, "num_experts": 2, "num_experts_per_tok": 1,
    },
    "mamba": {
        **_COMMON, "state_size": 8, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 4,
        "intermediate_size": 128,
    },
    "lfm2": _LFM,
    "lfm2_moe": {**_LFM, **_MOE, "use_expert_bias": True, "num_dense_layers": 1},
    "rwkv7": {
        **_COMMON, "norm_eps": 1e-5, "head_dim": 16, "a_low_rank_dim": 8, "v_low_rank_dim": 8,
        "gate_low_rank_dim": 8, "decay_low_rank_dim": 8,
    },
}  # fmt: skip


def random_model(family: str, seed: int = 0, **changes: Any) -> Any:
    """An mlx-lm model of that family with random weights, the same for the same arguments."""
    room = import_module(f"mlx_lm.models.{family}")
    config = copy.deepcopy({**CONFIGS[family], "model_type": family, **changes})
    model = room.Model(room.ModelArgs.from_dict(config))
    weights = tree.tree_flatten(model.parameters())
    keys = mx.random.split(mx.random.key(seed), len(weights))
    model.load_weights(
        [
            (name, mx.random.normal(array.shape, key=key) * 0.1 + (array.ndim == 1))
            for (name, array), key in zip(weights, keys, strict=True)
        ]
    )
    return model.eval()


def flat(caches: Sequence[Any]) -> list[Any]:
    """Caches without the pairs that some layers have, ours or mlx-lm's."""
    return [part for cache in caches for part in getattr(cache, "caches", (cache,))]


def roll_back(caches: Sequence[Any], lengths: Sequence[int]) -> None:
    for cache in caches:
        cache.roll_back(lengths)


class StockRun:
    """mlx-lm's own caches under its own classes: what a state should be."""

    def __init__(self, model: Any, rows: int = 1) -> None:
        from mlx_lm.models.cache import make_prompt_cache

        self._model, self._rows = model, rows
        self._caches = make_prompt_cache(model)

    def feed(self, tokens: Array) -> StockRun:
        """Runs tokens [B, n]."""
        self.logits(tokens)
        return self

    def logits(self, tokens: Array) -> Array:
        """Runs tokens [B, n]; gives what the model says of them, [B, n, V]."""
        return self._model(tokens, cache=self._caches)

    def feed_part(self, tokens: Array, kept: Sequence[int]) -> StockRun:
        """Runs tokens [B, n] of which the first `kept[b]` count, the rest being mlx-lm's padding on the right.

        So a part of a forward goes through products of the very shape that the whole one has.
        """
        recurrent = [
            cache for cache in flat(self._caches) if hasattr(cache, "finalize") and hasattr(cache, "advance")
        ]
        for cache in recurrent:
            cache.prepare(lengths=list(kept))
        self.feed(tokens)
        for cache in recurrent:
            cache.finalize()
        for cache in flat(self._caches):
            if cache not in recurrent:
                cache.trim(tokens.shape[1] - max(kept))
        return self

    @property
    def states(self) -> list[Array]:
        """The recurrent arrays, layer by layer."""
        return [array for cache in flat(self._caches) for array in getattr(cache, "cache", [])]


def held(caches: Sequence[Any]) -> list[StateCache]:
    """Our recurrent caches among a model's."""
    return [cache for cache in flat(caches) if isinstance(cache, StateCache)]


def states(caches: Sequence[Any]) -> list[Array]:
    """Their arrays, layer by layer."""
    return [array for cache in held(caches) for array in cache.slots]


def farthest(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest difference between two lists of arrays."""
    return max(float(mx.max(mx.abs(a - b)).item()) for a, b in zip(found, expected, strict=True))


def tokens_of(seed: int, count: int, rows: int = 1) -> Array:
    """Random token ids [rows, count]."""
    return mx.random.randint(0, VOCAB, (rows, count), key=mx.random.key(seed))
