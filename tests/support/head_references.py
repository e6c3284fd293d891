"""Every published head of a checkpoint of its own with its reference, and what to feed both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from reference.deepseek_head import deepseek_head
from reference.ernie_head import ernie_head
from reference.glm4_moe_head import glm4_moe_head
from reference.longcat_head import longcat_head
from reference.mimo_head import mimo_head
from reference.mimo_v2_head import mimo_v2_head
from reference.nemotron_head import nemotron_head
from reference.qwen_head import qwen_head
from reference.step_head import step_head
from support.head_rig import Opened

ALLOWED = 1e-4
LENGTH = 23
SPARSE = {"index_n_heads": 8}
"""So many that no two slots score alike: the choice would be open."""

FAMILIES: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
    "deepseek_v3": (deepseek_head, {"rope_scaling": None}, {}),
    "deepseek_v32": (deepseek_head, SPARSE, {"index_pairs": False}),
    "ernie4_5_moe": (ernie_head, {}, {}),
    "glm4_moe": (glm4_moe_head, {}, {}),
    "glm4_moe_lite": (deepseek_head, {}, {}),
    "glm_moe_dsa": (deepseek_head, SPARSE, {}),
    "longcat_flash": (longcat_head, {}, {}),
    "mimo": (mimo_head, {}, {}),
    "mimo_v2_flash": (mimo_v2_head, {}, {}),
    "nemotron_h": (nemotron_head, {}, {}),
    "qwen3_5": (qwen_head, {}, {}),
    "qwen3_5_moe": (qwen_head, {}, {}),
    "qwen3_next": (qwen_head, {}, {}),
    "step3p5": (step_head, {}, {}),
}


def draw(opened: Opened, drafts: int) -> tuple[list[int], np.ndarray[Any, Any], list[int]]:
    """Tokens, hidden states [LENGTH, H] and drafts."""
    rng = np.random.default_rng(5)
    tokens = rng.integers(0, opened.config["vocab_size"], LENGTH + drafts).tolist()
    hidden = rng.normal(0, 2, (LENGTH, opened.config["hidden_size"]))
    return tokens[:LENGTH], hidden, tokens[LENGTH:]


def reference_of(family: str, opened: Opened, **switches: Any) -> Any:
    make, _, more = FAMILIES[family]
    weights = {name: np.asarray(w, np.float64) for name, w in opened.tensors.items()}
    embedding, output = opened.embedding.astype(np.float64), opened.output.astype(np.float64)
    return make(weights, opened.config, embedding, output, **more, **switches)
