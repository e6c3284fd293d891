"""Published heads of DeepSeek, GLM, Step and MiMo-V2 agree with their equations, in any partition of the text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.deepseek_head import deepseek_head
from reference.glm4_moe_head import glm4_moe_head
from reference.mimo_v2_head import mimo_v2_head
from reference.step_head import step_head
from support.families import write_checkpoint
from support.head_rig import Opened, draft_logits, open_head

ALLOWED = 1e-4
LENGTH = 23
PARTITIONS = ([23], [1] * 23, [2, 1, 9, 1, 1, 4, 5], [20, 3])
SPARSE = {"index_n_heads": 8}
"""So many that no two slots score alike: the choice would be open."""

FAMILIES: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
    "deepseek_v3": (deepseek_head, {"rope_scaling": None}, {}),
    "deepseek_v32": (deepseek_head, SPARSE, {"index_pairs": False}),
    "glm4_moe": (glm4_moe_head, {}, {}),
    "glm4_moe_lite": (deepseek_head, {}, {}),
    "glm_moe_dsa": (deepseek_head, SPARSE, {}),
    "mimo_v2_flash": (mimo_v2_head, {}, {}),
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


@pytest.mark.parametrize("family", FAMILIES)
def test_it_agrees_with_its_equations_over_chunks_and_steps(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, family, config=FAMILIES[family][1], seed=3)
    opened = open_head(folder)
    tokens, hidden, drafts = draw(opened, drafts=2)
    wanted = reference_of(family, opened).draft(tokens, hidden, drafts)
    for cuts in PARTITIONS:
        found = draft_logits(opened.head, tokens, hidden, drafts, cuts)
        assert np.abs(found - wanted).max() < ALLOWED, cuts
