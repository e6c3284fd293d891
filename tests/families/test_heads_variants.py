"""Published heads in the forms that releases of one family differ in: FP8, narrower experts, tied matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.families.load import load_model
from mtplxd.packs.pack import read_pack
from support.checkpoint_files import Stored
from support.families import TINY, write_checkpoint
from support.head_references import ALLOWED, draw, reference_of
from support.head_rig import draft_logits, open_head
from support.steering import assert_contents, assert_lengths, open_steered, play
from support.stock import greedy_text, load_stock

PROMPT = [5, 17, 3, 99, 64, 2, 41, 8, 90, 11, 7, 23]
FP8 = (
    "deepseek_v3",
    "deepseek_v32",
    "glm_moe_dsa",
    "longcat_flash",
    "mimo_v2_flash",
    "qwen3_5_moe",
    "qwen3_next",
)


def tied(family: str) -> dict[str, Any]:
    if "text_config" not in TINY[family]:
        return {"tie_word_embeddings": True}
    text = {**TINY[family]["text_config"], "tie_word_embeddings": True}
    return {"text_config": text, "tie_word_embeddings": True}


@pytest.mark.parametrize("family", FP8)
def test_an_fp8_release_decodes_as_its_class_does(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, family, fp8=True)
    text = [*PROMPT, *greedy_text(load_stock(folder), PROMPT, 20)]
    batch = open_steered(load_model(read_pack(folder)), PROMPT, 3)
    for passing in (0, 3, 1, 2):
        assert play(batch, 3, text, passing) == passing
        assert_lengths(batch)
        assert_contents(batch)
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]


@pytest.mark.parametrize("family", ["longcat_flash", "qwen3_5_moe", "qwen3_next"])
def test_an_fp8_head_agrees_with_the_equations_over_its_stored_numbers(family: str, tmp_path: Path) -> None:
    assert_follows(family, write_checkpoint(tmp_path, family, fp8=True, seed=3))


def test_experts_in_a_narrower_space_agree_with_their_equations(tmp_path: Path) -> None:
    config = {"moe_latent_size": 40, "n_group": 2, "topk_group": 1}
    assert_follows("nemotron_h", write_checkpoint(tmp_path, "nemotron_h", config=config, seed=3))


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_next", "mimo"])
def test_a_tied_bodys_embedding_is_the_heads_output_matrix(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, family, config=tied(family), seed=3)
    assert not any("lm_head" in name for name in read_pack(folder).body_tensors)
    assert_follows(family, folder)
    text = [*PROMPT, *greedy_text(load_stock(folder), PROMPT, 20)]
    batch = open_steered(load_model(read_pack(folder), depth_max=2), PROMPT, 2)
    for passing in (1, 0, 2):
        assert play(batch, 2, text, passing) == passing
        assert_contents(batch)


def test_a_second_layer_of_a_family_that_publishes_one_drafts_the_second_token(tmp_path: Path) -> None:
    def repeat(head: dict[str, Stored]) -> None:
        head |= {name.replace("mtp_layers.0.", "mtp_layers.1."): one for name, one in head.items()}

    folder = write_checkpoint(tmp_path, "mimo", edit=repeat)
    model = load_model(read_pack(folder))
    assert model.depth_max == 2
    text = [*PROMPT, *greedy_text(load_stock(folder), PROMPT, 20)]
    batch = open_steered(model, PROMPT, 2)
    for passing in (0, 2, 1, 2, 0):
        assert play(batch, 2, text, passing) == passing
        assert_lengths(batch)
        assert_contents(batch)
    assert len(batch.head_cache) == 2
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]


def assert_follows(family: str, folder: Path) -> None:
    opened = open_head(folder)
    tokens, hidden, drafts = draw(opened, drafts=2)
    wanted = reference_of(family, opened).draft(tokens, hidden, drafts)
    for cuts in ([23], [1] * 23, [20, 3]):
        found = draft_logits(opened.head, tokens, hidden, drafts, cuts)
        assert np.abs(found - wanted).max() < ALLOWED
