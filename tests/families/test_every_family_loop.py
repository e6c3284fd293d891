"""The whole loop with the head of every family: greedy text as mlx-lm's own class gives it, whatever is accepted."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from support.families import FAMILIES, write_checkpoint
from support.steering import assert_contents, assert_lengths, open_steered, play
from support.stock import greedy_text, load_stock

PROMPT = [5, 17, 3, 99, 64, 2, 41, 8, 90, 11, 7, 23, 150, 260, 31, 31, 12, 77, 9]
TOKENS = 48
DEPTH = 3
"""Where a family's head drafts fewer, its depth is raised: a user may."""


@cache
def opened(family: str, root: Path) -> tuple[LoadedModel, list[int]]:
    """A loaded checkpoint, and its prompt with the greedy text of the stock class."""
    folder = write_checkpoint(root / family, family)
    text = greedy_text(load_stock(folder), PROMPT, TOKENS + DEPTH)
    return load_model(read_pack(folder), depth_max=DEPTH), [*PROMPT, *text]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("depth", [1, 2, 3])
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
