"""No benchmark prompt was trained on: none shares 12 consecutive tokens with what the shipped head was trained on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "daemon" / "mtplxd" / "tune" / "suites"
DATA = ROOT / "tests" / "data"
NAMES = ("chat", "code", "prose", "mixed")
SHARED = 12


def prompts(name: str) -> dict[str, str]:
    suite = json.loads((SUITES / f"{name}.json").read_text())
    return {prompt["id"]: prompt["messages"][-1]["content"] for prompt in suite["prompts"]}


def grams(ids: np.ndarray) -> np.ndarray:
    """Every run of 12 tokens along the last axis, as one void scalar each."""
    runs = np.lib.stride_tricks.sliding_window_view(ids.astype(np.uint16), SHARED, axis=-1)
    flat = np.ascontiguousarray(runs.reshape(-1, SHARED))
    return flat.view(np.dtype((np.void, flat.itemsize * SHARED))).ravel()


@pytest.fixture(scope="module")
def suite_ids() -> dict[str, list[int]]:
    return json.loads((DATA / "suite_ids.json").read_text())["ids"]


@pytest.fixture(scope="module")
def training_rows() -> list[np.ndarray]:
    """Arrays of rows [rows, length], one a part of the data."""
    with np.load(DATA / "training_tokens.npz") as file:
        return [file[name] for name in sorted(file.files)]


@pytest.mark.parametrize("name", ["chat", "code", "prose"])
def test_a_suite_is_large_and_its_prompts_differ(name: str) -> None:
    found = prompts(name)
    assert len(found) >= 24
    assert len(set(found.values())) == len(found)


def test_mixed_takes_turns() -> None:
    found = list(prompts("mixed"))
    assert [identity.split("-")[0] for identity in found[:6]] == ["chat", "code", "prose"] * 2
    assert set(found) == {identity for name in NAMES[:3] for identity in prompts(name)}


def test_the_recorded_ids_are_of_the_suites_as_they_are() -> None:
    texts = json.dumps(prompts("mixed"), sort_keys=True).encode()
    recorded = json.loads((DATA / "suite_ids.json").read_text())
    assert recorded["sha256"] == hashlib.sha256(texts).hexdigest()
    assert recorded["ids"].keys() == prompts("mixed").keys()


def test_no_prompt_shares_twelve_tokens_with_the_training_text(
    suite_ids: dict[str, list[int]], training_rows: list[np.ndarray]
) -> None:
    seen = np.sort(np.concatenate([grams(rows) for rows in training_rows]))
    for identity, ids in suite_ids.items():
        if len(ids) >= SHARED:
            asked = grams(np.array(ids))
            places = np.minimum(np.searchsorted(seen, asked), len(seen) - 1)
            assert not (seen[places] == asked).any(), identity


def test_a_trained_prompt_would_be_found(training_rows: list[np.ndarray]) -> None:
    seen = np.sort(grams(training_rows[-1][:50]))
    asked = grams(training_rows[-1][3, 40:60])
    assert (seen[np.searchsorted(seen, asked)] == asked).all()
