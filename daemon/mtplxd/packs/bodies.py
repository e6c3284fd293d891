"""Which bodies can be run at all: the model types that the pinned mlx-lm has a class for, whose caches can go back.

Lists, so that they can be asked where MLX is absent; tests hold them to the library that is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OTHER_NAMES = """
deepseek_v41_text falcon_mamba gemma4_unified iquestcoder joyai_llm_flash kimi_k2 llava minimax_m2 mistral
qwen2_5_vl xverse
"""
"""Model types that run on the class of another one."""
_CLASSES = """
Klear afm7 afmoe apertus baichuan_m1 bailing_hybrid bailing_moe bailing_moe_linear bailing_moe_v3 bitnet
cohere cohere2 dbrx deepseek deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v41 dots1 ernie4_5 ernie4_5_moe
exaone exaone4 exaone_moe falcon_h1 gear gemma gemma2 gemma3 gemma3_text gemma3n gemma4 gemma4_text glm glm4
glm4_moe glm4_moe_lite glm_moe_dsa gpt2 gpt_bigcode gpt_neox gpt_oss gptj granite granitemoe
granitemoehybrid helium hunyuan hunyuan_v1_dense internlm2 internlm3 iquestloopcoder jamba kimi_k25 kimi_k3
kimi_linear kimi_vl laguna lfm2 lfm2_moe llama llama4 llama4_text longcat_flash longcat_flash_ngram mamba
mamba2 mellum mimo mimo_v2_flash minicpm minicpm3 minimax minimax_m3_vl ministral3 mistral3 mistral4 mixtral
muse_glimmer muse_spark nanbeige nanochat nemotron nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe openelm phi
phi3 phi3small phimoe phixtral pixtral plamo plamo2 plamo3 prism_hadamard_qwen35 qwen qwen2 qwen2_moe
qwen2_vl qwen3 qwen3_5 qwen3_5_moe qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe recurrent_gemma rwkv7 seed_oss
smollm3 solar_open spark2_5 stablelm starcoder2 step3p5 talkie telechat3 youtu_llm
"""
BODIES = frozenset(f"{_CLASSES} {_OTHER_NAMES}".split())
CANNOT_GO_BACK = frozenset(
    {
        "afm7", "baichuan_m1", "deepseek_v41", "deepseek_v41_text", "llama4", "longcat_flash_ngram",
        "recurrent_gemma", "rwkv7",
    }
)  # fmt: skip
"""Those that remember their text in a way of their own: what a round did not keep could not be taken back."""


def body_faults(config: Mapping[str, Any]) -> list[str]:
    """Why a body of this config cannot be run, in words; empty where it can."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        return ["its config.json names no model_type"]
    if "model_file" in config:
        return [f"it asks to run code of its own (model_file {config['model_file']!r}), which is never run"]
    if kind not in BODIES:
        return [f"its model_type {kind} is not one that this build can run"]
    return [f"a body of model_type {kind} cannot take tokens back"] if kind in CANNOT_GO_BACK else []


def body_notes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What is worth telling of a body and stops nothing."""
    mapped = config.get("auto_map")
    if not mapped:
        return ()
    named = ", ".join(sorted(map(str, mapped))) if isinstance(mapped, dict) else str(mapped)
    return (f"its config.json names code of its own (auto_map: {named}), which is never run",)
