"""The smallest config of every family that exercises each of its layer kinds: facts, no code.

Widths of MLPs are no multiple of 128, windows and sparse attention's top-k are short enough to act within a test.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

VOCAB = 300
_COMMON: Config = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_SHARED_EXPERTS: Config = {
    "num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 32,
    "moe_intermediate_size": 32, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
_LINEAR: Config = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "full_attention_interval": 2,
}  # fmt: skip
_QWEN_TEXT: Config = {
    **_COMMON, **_LINEAR, "model_type": "qwen3_5_text", "num_hidden_layers": 4, "attention_bias": False,
    "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False,
    "rope_parameters": {
        "rope_type": "default", "mrope_section": [1, 1, 0], "mrope_interleaved": True, "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
    },
}  # fmt: skip
_ROUTED: Config = {
    "n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "routed_scaling_factor": 2.5, "norm_topk_prob": True, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
_LATENT: Config = {
    **_COMMON, **_ROUTED, "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 24, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16, "v_head_dim": 24, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    "moe_layer_freq": 1, "attention_bias": False, "num_nextn_predict_layers": 1,
}  # fmt: skip
_YARN: Config = {
    "type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
_INDEXER: Config = {"index_head_dim": 16, "index_n_heads": 2, "index_topk": 8}
_ASSISTANT: Config = {
    "model_type": "gemma4_assistant", "backbone_hidden_size": 64, "use_ordered_embeddings": True,
    "num_centroids": 20, "centroid_intermediate_top_k": 4, "tie_word_embeddings": True,
    "text_config": {
        "model_type": "gemma4_text", "hidden_size": 32, "num_hidden_layers": 4, "vocab_size": VOCAB,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 32,
        "intermediate_size": 96, "max_position_embeddings": 1024, "num_kv_shared_layers": 4, "sliding_window": 8,
        "rms_norm_eps": 1e-6, "hidden_size_per_layer_input": 0,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    },
}  # fmt: skip

TINY: dict[str, Config] = {
    "qwen3_next": {
        **_COMMON, **_LINEAR, **_SHARED_EXPERTS, "model_type": "qwen3_next", "num_hidden_layers": 4,
        "partial_rotary_factor": 0.25,
    },
    "qwen3_5": {"model_type": "qwen3_5", "text_config": _QWEN_TEXT, "tie_word_embeddings": False},
    "qwen3_5_moe": {
        "model_type": "qwen3_5_moe", "tie_word_embeddings": False,
        "text_config": {**_QWEN_TEXT, **_SHARED_EXPERTS, "model_type": "qwen3_5_moe_text"},
    },
    "deepseek_v3": {
        **_LATENT, "model_type": "deepseek_v3", "n_group": 2, "topk_group": 1, "rope_scaling": _YARN,
    },
    "deepseek_v32": {
        **_LATENT, **_INDEXER, "model_type": "deepseek_v32", "n_group": 2, "topk_group": 1, "rope_scaling": None,
    },
    "glm4_moe": {
        **_COMMON, **_ROUTED, "model_type": "glm4_moe", "rope_scaling": None, "use_qk_norm": True,
        "attention_bias": True, "partial_rotary_factor": 0.5, "num_nextn_predict_layers": 1,
    },
    "glm4_moe_lite": {**_LATENT, "model_type": "glm4_moe_lite"},
    "glm_moe_dsa": {
        **_LATENT, **_INDEXER, "model_type": "glm_moe_dsa",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "mimo": {
        **_COMMON, "model_type": "mimo", "rms_norm_eps": 1e-5, "attention_bias": True, "num_nextn_predict_layers": 1,
    },
    "nemotron_h": {
        **_COMMON, **_ROUTED, "model_type": "nemotron_h", "num_hidden_layers": 4, "attention_bias": False,
        "mamba_num_heads": 4, "mamba_head_dim": 16, "mamba_proj_bias": False, "ssm_state_size": 16,
        "conv_kernel": 4, "n_groups": 2, "mlp_bias": False, "layer_norm_epsilon": 1e-5, "use_bias": False,
        "use_conv_bias": True, "hybrid_override_pattern": "M*ME", "moe_shared_expert_intermediate_size": 48,
        "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E",
    },
    "ernie4_5_moe": {
        **_COMMON, "model_type": "ernie4_5_moe", "rms_norm_eps": 1e-5, "use_bias": False, "moe_num_experts": 4,
        "moe_layer_start_index": 1, "moe_intermediate_size": 32, "moe_k": 2, "moe_layer_interval": 1,
        "moe_num_shared_experts": 1, "moe_layer_end_index": 1, "num_nextn_predict_layers": 1,
        "tie_word_embeddings": True,
    },
    "step3p5": {
        **_COMMON, "model_type": "step3p5", "num_attention_groups": 2, "rms_norm_eps": 1e-5, "sliding_window": 8,
        "rope_theta": [10000.0, 5000.0, 5000.0, 5000.0, 5000.0],
        "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0, 1.0],
        "layer_types": ["full_attention", *["sliding_attention"] * 4],
        "attention_other_setting": {
            "attention_type": "sliding_attention", "num_attention_heads": 6, "num_attention_groups": 3,
            "head_dim": 16,
        },
        "use_head_wise_attn_gate": True, "moe_num_experts": 4, "moe_top_k": 2, "moe_intermediate_size": 32,
        "share_expert_dim": 32, "moe_layers_enum": "1", "moe_router_scaling_factor": 3.0,
        "norm_expert_weight": True, "num_nextn_predict_layers": 3,
    },
    "longcat_flash": {
        **_LATENT, "model_type": "longcat_flash", "attention_method": "MLA", "zero_expert_type": "identity",
        "ffn_hidden_size": 160, "moe_topk": 2, "expert_ffn_hidden_size": 32, "zero_expert_num": 2,
        "num_layers": 2, "routed_scaling_factor": 2.0, "rms_norm_eps": 1e-5, "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
    },
    "mimo_v2_flash": {
        **_COMMON, **_ROUTED, "model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1],
        "moe_layer_freq": [0, 1], "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False,
        "sliding_window_size": 8, "n_shared_experts": None, "routed_scaling_factor": None,
        "topk_method": "noaux_tc", "scoring_func": "sigmoid", "layernorm_epsilon": 1e-5, "swa_rope_theta": 1e4,
        "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "v_head_dim": 8, "swa_head_dim": 16,
        "swa_v_head_dim": 8, "partial_rotary_factor": 0.5, "attention_value_scale": 0.707,
    },
    "gemma4": {
        "model_type": "gemma4", "vocab_size": VOCAB, "tie_word_embeddings": True,
        "text_config": {
            **_COMMON, "model_type": "gemma4_text", "num_hidden_layers": 4, "global_head_dim": 32,
            "vocab_size_per_layer_input": VOCAB, "num_key_value_heads": 1, "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 8, "sliding_window": 8, "sliding_window_pattern": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 2, "use_double_wide_mlp": True,
            "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
        },
    },
    "kimi_k2": {**_LATENT, "model_type": "kimi_k2", "num_nextn_predict_layers": 0},
    "minimax_m2": {
        **_COMMON, "model_type": "minimax_m2", "intermediate_size": 32, "num_experts_per_tok": 2,
        "num_local_experts": 4, "shared_intermediate_size": 0, "rotary_dim": 8, "use_qk_norm": True,
        "use_mtp": True, "num_mtp_modules": 1,
    },
}  # fmt: skip
"""By family; `kimi_k2` and `minimax_m2` have no head."""

GEMMA_ASSISTANT: Config = _ASSISTANT
