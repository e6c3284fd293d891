"""Configs of published checkpoints, as far as their heads' shapes follow from them: facts, no code."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

DEEPSEEK: Config = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "vocab_size": 129280,
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "attention_bias": False,
    "num_nextn_predict_layers": 1, "max_position_embeddings": 163840,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}  # fmt: skip
GLM_45: Config = {
    "model_type": "glm4_moe", "hidden_size": 5120, "num_hidden_layers": 92, "vocab_size": 151552,
    "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288,
    "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 1, "attention_bias": True,
    "use_qk_norm": True, "num_nextn_predict_layers": 1, "max_position_embeddings": 131072,
}  # fmt: skip
GLM_AIR: Config = {
    **GLM_45, "hidden_size": 4096, "num_hidden_layers": 46, "use_qk_norm": False,
    "moe_intermediate_size": 1408, "n_routed_experts": 128,
}  # fmt: skip
GLM_FLASH: Config = {
    **DEEPSEEK, "model_type": "glm4_moe_lite", "hidden_size": 2048, "num_hidden_layers": 47, "vocab_size": 154880,
    "num_attention_heads": 20, "num_key_value_heads": 20, "q_lora_rank": 768, "qk_nope_head_dim": 192,
    "v_head_dim": 256, "moe_intermediate_size": 1536, "n_routed_experts": 64,
}  # fmt: skip
GLM_5: Config = {
    **DEEPSEEK, "model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78, "vocab_size": 154880,
    "num_attention_heads": 64, "q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256,
    "index_n_heads": 32, "index_head_dim": 128,
}  # fmt: skip
V32: Config = {**DEEPSEEK, "model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128}
MIMO: Config = {
    "model_type": "mimo", "hidden_size": 4096, "num_hidden_layers": 36, "vocab_size": 151680,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 11008,
    "attention_bias": True, "num_nextn_predict_layers": 1, "max_position_embeddings": 32768,
}  # fmt: skip
MIMO_V2: Config = {
    "model_type": "mimo_v2_flash", "hidden_size": 4096, "num_hidden_layers": 48, "vocab_size": 152576,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128,
    "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128,
    "intermediate_size": 16384, "add_swa_attention_sink_bias": True, "max_position_embeddings": 262144,
}  # fmt: skip
_QWEN_TEXT: Config = {
    "model_type": "qwen3_5_text", "hidden_size": 5120, "num_hidden_layers": 64, "vocab_size": 248320,
    "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 17408,
    "mtp_num_hidden_layers": 1, "max_position_embeddings": 262144,
}  # fmt: skip
_MOE = {
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "num_experts": 256,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
}  # fmt: skip
QWEN: Config = {"model_type": "qwen3_5", "text_config": _QWEN_TEXT}
QWEN_MOE: Config = {
    "model_type": "qwen3_5_moe",
    "text_config": {**_QWEN_TEXT, "model_type": "qwen3_5_moe_text", "num_hidden_layers": 40, **_MOE},
}
QWEN_NEXT: Config = {
    **_QWEN_TEXT, "model_type": "qwen3_next", "num_hidden_layers": 48, **_MOE, "num_experts": 512,
    "mtp_num_hidden_layers": None,
}  # fmt: skip
NEMOTRON: Config = {
    "model_type": "nemotron_h", "hidden_size": 2688, "num_hidden_layers": 52, "vocab_size": 131072,
    "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 1856,
    "mtp_hybrid_override_pattern": "*E", "n_routed_experts": 128, "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712, "num_nextn_predict_layers": 1, "max_position_embeddings": 262144,
}  # fmt: skip
NEMOTRON_SUPER: Config = {
    **NEMOTRON, "hidden_size": 4096, "num_hidden_layers": 88, "n_routed_experts": 512, "moe_latent_size": 1024,
    "moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376,
    "mtp_hybrid_override_pattern": None, "mtp_layers_block_type": ["attention", "moe"],
}  # fmt: skip
ERNIE: Config = {
    "model_type": "ernie4_5_moe", "hidden_size": 2560, "num_hidden_layers": 28, "vocab_size": 103424,
    "num_attention_heads": 20, "num_key_value_heads": 4, "intermediate_size": 12288, "use_bias": False,
    "num_nextn_predict_layers": 1, "max_position_embeddings": 131072, "tie_word_embeddings": True,
}  # fmt: skip
LONGCAT: Config = {
    "model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28, "vocab_size": 131072,
    "num_attention_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128, "ffn_hidden_size": 12288, "attention_bias": False,
    "max_position_embeddings": 131072,
}  # fmt: skip
STEP: Config = {
    "model_type": "step3p5", "hidden_size": 4096, "num_hidden_layers": 45, "vocab_size": 128896,
    "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128, "intermediate_size": 11264,
    "layer_types": (["full_attention", *["sliding_attention"] * 3] * 12)[:45] + ["sliding_attention"] * 3,
    "attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128},
    "use_head_wise_attn_gate": True, "num_nextn_predict_layers": 3, "max_position_embeddings": 262144,
}  # fmt: skip
GEMMA_ASSISTANT: Config = {
    "model_type": "gemma4_assistant", "backbone_hidden_size": 1536, "use_ordered_embeddings": True,
    "num_centroids": 2048, "tie_word_embeddings": True,
    "text_config": {
        "hidden_size": 256, "num_hidden_layers": 4, "vocab_size": 262144, "num_attention_heads": 4,
        "head_dim": 256, "global_head_dim": 512, "intermediate_size": 2048, "max_position_embeddings": 131072,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    },
}  # fmt: skip
KIMI_K2: Config = {
    **DEEPSEEK,
    "model_type": "kimi_k2",
    "num_nextn_predict_layers": 0,
    "n_routed_experts": 384,
}
KIMI_K3: Config = {
    "model_type": "kimi_k3",
    "text_config": {
        "model_type": "kimi_linear", "hidden_size": 2304, "num_hidden_layers": 27, "vocab_size": 163840,
        "num_attention_heads": 32, "num_nextn_predict_layers": 0, "max_position_embeddings": 1048576,
    },
}  # fmt: skip
