"""The whole loop with the head of every family: greedy text as mlx-lm's own class gives it, whatever is accepted."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from mtplxd.engine.round import discard, launch
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from support.families import FAMILIES, write_checkpoint
from support.ragged import counted
from support.steering import assert_contents, assert_lengths, open_steered, play
from support.stock import greedy_text, load_stock

PROMPT = [5, 17, 3, 99, 64, 2, 41, 8, 90, 11, 7, 23, 150, 260, 31, 31, 12, 77, 9]
TOKENS = 48
DEPTH = 3
"""Where a family's head drafts fewer, its depth is raised: a user may."""

EASY_SEEDS = {"glm_moe_dsa": 1, "step3p5": 1}
"""Where the first one's text has two tokens too close to tell apart."""
REPEATING = ("ernie4_5_moe", "gemma4")
"""Bodies with one matrix for tokens in and out, which made easy only say the last token again."""


stock = cache(load_stock)


@cache
def opened(family: str, root: Path) -> tuple[LoadedModel, list[int]]:
    """A loaded checkpoint, and its prompt with the greedy text of the stock class."""
    folder = write_checkpoint(root / family, family)
    text = greedy_text(stock(folder), PROMPT, TOKENS + DEPTH)
    return load_model(read_pack(folder), depth_max=DEPTH), [*PROMPT, *text]


@cache
def easy(family: str, root: Path) -> tuple[LoadedModel, list[int]]:
    """The same of a checkpoint whose head guesses some tokens right."""
    folder = write_checkpoint(root / f"{family}-easy", family, easy=True, seed=EASY_SEEDS.get(family, 0))
    text = greedy_text(stock(folder), PROMPT, TOKENS + DEPTH)
    return load_model(read_pack(folder), depth_max=DEPTH), [*PROMPT, *text]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("depth", [1, 3])
def test_text_and_caches_are_right_whatever_is_accepted(family: str, depth: int, root: Path) -> None:
    model, text = opened(family, root)
    batch = open_steered(model, PROMPT, depth)
    assert_lengths(batch)
    plan, seen = [*range(depth + 1), *reversed(range(depth + 1))], set()
    while len(batch.rows[0].tokens) < len(PROMPT) + TOKENS:
        passing = plan[batch.rows[0].counts.rounds % len(plan)]
        assert play(batch, depth, text, passing) == passing
        seen.add(passing)
        assert_lengths(batch)
        if batch.rows[0].counts.rounds % 4 < 2:
            assert_contents(batch)
    assert seen == set(range(depth + 1))
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]


@pytest.mark.parametrize("chunk", [1, 3, 8, 512])
def test_a_prompt_in_chunks_leaves_what_it_leaves_whole(family: str, chunk: int, root: Path) -> None:
    model, _ = opened(family, root)
    batch = open_steered(model, PROMPT, DEPTH, chunk)
    assert_lengths(batch)
    assert_contents(batch)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_the_shortest_prompts_are_drafted_behind(family: str, length: int, root: Path) -> None:
    model, _ = opened(family, root)
    prompt = PROMPT[:length]
    text = [*prompt, *greedy_text(stock(root / family), prompt, 16)]
    batch = open_steered(model, prompt, DEPTH)
    for depth, passing in [(0, 0)] * (length == 1) + [(3, 0), (3, 3), (3, 1), (3, 2)]:
        assert play(batch, depth, text, passing) == passing
        assert_lengths(batch)
        assert_contents(batch)
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]


def test_natural_drafts_of_a_head_that_guesses_are_kept_where_right(family: str, root: Path) -> None:
    model, text = easy(family, root)
    batch = open_steered(model, PROMPT, DEPTH)
    accepted = []
    while len(batch.rows[0].tokens) < len(text) - DEPTH:
        accepted.append(play(batch, DEPTH))
        assert_lengths(batch)
    assert_contents(batch)
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]
    if family not in REPEATING:
        assert 0 in accepted
        assert max(accepted) > 0


def test_plain_rounds_between_drafts_let_pairs_wait_and_lose_none(family: str, root: Path) -> None:
    model, text = opened(family, root)
    batch = open_steered(model, PROMPT, DEPTH)
    for depth, passing in [
        (3, 1),
        (0, 0),
        (0, 0),
        (3, 2),
        (0, 0),
        (1, 1),
        (2, 0),
        (0, 0),
        (0, 0),
        (0, 0),
        (3, 3),
    ]:
        assert play(batch, depth, text, passing) == passing
        assert_lengths(batch)
        assert_contents(batch)
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]


def test_a_round_that_is_taken_back_leaves_no_trace(family: str, root: Path) -> None:
    model, text = opened(family, root)
    batch = open_steered(model, PROMPT, DEPTH)
    for passing in (2, 0, 3, 1):
        discard(batch, launch(batch, counted([0], [0]), [DEPTH]))
        assert_lengths(batch)
        assert_contents(batch)
        assert play(batch, DEPTH, text, passing) == passing
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]


@pytest.mark.parametrize("family", ["gemma4", "mimo_v2_flash", "step3p5", "qwen3_5", "deepseek_v32"])
def test_a_long_text_goes_on_behind_windows_and_steps_of_capacity(family: str, root: Path) -> None:
    model, _ = opened(family, root)
    prompt = [(7 * place * place + 3 * place) % 290 + 5 for place in range(700)]
    text = [*prompt, *greedy_text(stock(root / family), prompt, 40)]
    batch = open_steered(model, prompt, DEPTH)
    while len(batch.rows[0].tokens) < len(prompt) + 36:
        passing = batch.rows[0].counts.rounds % (DEPTH + 1)
        assert play(batch, DEPTH, text, passing) == passing
        assert_lengths(batch)
    assert_contents(batch, tolerance=1e-4)
    assert batch.rows[0].tokens == text[: len(batch.rows[0].tokens)]
