"""A head of several layers: each layer's history lags by its number, drafts leave nothing, a gap is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.platform.mlx import mx
from reference.chained import ReferenceChain
from support.checkpoint_files import read_tensors
from support.families import write_checkpoint
from support.head_references import ALLOWED, LENGTH, draw, reference_of
from support.head_rig import Opened, open_head
from support.sidecars import SIDECAR, Tensors, rewrite

CHAINS = ("step3p5", "mimo_v2_flash")


@pytest.fixture(params=CHAINS)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def opened(family: str, tmp_path: Path) -> Opened:
    return open_head(write_checkpoint(tmp_path, family, seed=3))


class Walk:
    """Absorbs, drafts and rolls back as the engine does, one row."""

    def __init__(self, opened: Opened, drafts: int = 2) -> None:
        self.head: Any = opened.head
        self.cache = self.head.make_cache(1, [])
        self.tokens, hidden, self.drafts = draw(opened, drafts)
        self.taps = mx.array(hidden[None].astype(np.float32))
        self.hidden = hidden
        self.pairs = 0

    def absorb(self, count: int) -> Any:
        begin, self.pairs = self.pairs, self.pairs + count
        tokens = mx.array([self.tokens[begin : self.pairs]])
        state = self.head.absorb(tokens, (self.taps[:, begin : self.pairs],), self.cache)
        self.settle(self.pairs)
        return state[:, -1:]

    def draft(self, state: Any, count: int) -> np.ndarray[Any, Any]:
        """Logits [1 + count, V]."""
        made = [self.head.logits(state)]
        for token in self.drafts[:count]:
            state = self.head.extend(mx.array([[token]]), state, self.cache)
            made.append(self.head.logits(state))
        return np.array(mx.concatenate(made, axis=1)[0])

    def settle(self, pairs: int) -> None:
        self.pairs = pairs
        for lag, layer in enumerate(self.cache):
            layer.roll_back([max(0, pairs - lag)])

    def wanted(self, reference: Any, count: int) -> np.ndarray[Any, Any]:
        drafts = self.drafts[:count]
        found: np.ndarray[Any, Any] = reference.draft(
            self.tokens[: self.pairs], self.hidden[: self.pairs], drafts
        )
        return found

    @property
    def lengths(self) -> list[int]:
        return [layer.lengths[0] for layer in self.cache]


def test_it_is_as_deep_as_it_has_layers(opened: Opened, family: str, tmp_path: Path) -> None:
    assert opened.head.depth_max == len(opened.head.module.layers) == 3
    folder = write_checkpoint(tmp_path / "again", family)
    assert open_head(folder, depth_max=2).head.depth_max == 2
    with pytest.raises(FailedPrecondition, match=r"one token a layer \(depth 4\): use at most 3"):
        open_head(folder, depth_max=4)


def test_layers_lag_by_their_number_from_the_first_pair_on(opened: Opened) -> None:
    walk = Walk(opened)
    for count in (1, 1, 1, 2, 5, 1, 3):
        walk.absorb(count)
        assert walk.lengths == [walk.pairs, max(0, walk.pairs - 1), max(0, walk.pairs - 2)]


def test_drafts_are_right_from_the_first_pair_on_and_leave_nothing(opened: Opened, family: str) -> None:
    walk, reference = Walk(opened), reference_of(family, opened)
    for round_, count in enumerate((1, 1, 1, 2, 1, 4, 1, 6, 1, 1, 4)):
        state = walk.absorb(count)
        depth = round_ % 3
        found = walk.draft(state, depth)
        assert np.abs(found - walk.wanted(reference, depth)).max() < ALLOWED, round_
        walk.settle(walk.pairs)
        assert walk.lengths == [walk.pairs, max(0, walk.pairs - 1), max(0, walk.pairs - 2)]
    assert walk.pairs == LENGTH


def test_an_absorbed_forward_may_be_taken_back(opened: Opened, family: str) -> None:
    walk = Walk(opened)
    walk.absorb(9)
    walk.draft(walk.absorb(4), 2)
    walk.settle(9)
    found = walk.draft(walk.absorb(3), 2)
    assert np.abs(found - walk.wanted(reference_of(family, opened), 2)).max() < ALLOWED


def test_a_history_that_restarts_forgets_what_was_carried(opened: Opened, family: str) -> None:
    walk = Walk(opened)
    walk.draft(walk.absorb(8), 2)
    walk.settle(0)
    assert walk.lengths == [0, 0, 0]
    walk.tokens, walk.hidden, walk.taps = walk.tokens[8:], walk.hidden[8:], walk.taps[:, 8:]
    for count in (1, 3, 1):
        found = walk.draft(walk.absorb(count), 2)
        assert np.abs(found - walk.wanted(reference_of(family, opened), 2)).max() < ALLOWED
        walk.settle(walk.pairs)


def test_going_on_behind_pairs_that_nothing_was_carried_for_is_an_error(opened: Opened) -> None:
    walk = Walk(opened)
    walk.absorb(9)
    walk.settle(5)
    with pytest.raises(ValueError, match="behind 5 pairs"):
        walk.absorb(1)


def test_what_is_carried_is_evaluated_and_counted_with_the_cache(opened: Opened) -> None:
    walk = Walk(opened)
    assert walk.cache[0].state == []
    walk.absorb(4)
    carried = sum(array.nbytes for array in walk.cache[0].state[2:])
    assert carried > 0
    assert walk.cache[0].nbytes == sum(array.nbytes for array in walk.cache[0].state)
    for _ in range(6):
        walk.absorb(2)
    assert sum(array.nbytes for array in walk.cache[0].state[2:]) <= 2 * carried


@pytest.mark.parametrize("family", ["glm4_moe"])
def test_a_second_appended_layer_drafts_the_second_token(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "own", family, place=SIDECAR, copies=False)
    other = read_tensors(write_checkpoint(tmp_path / "other", family, seed=9, copies=False))

    def append(tensors: Tensors) -> None:
        for name in list(tensors):
            second = mx.array(other[name]).astype(tensors[name].dtype)
            tensors[name.replace("layers.2.", "layers.3.")] = second

    rewrite(folder, append)
    opened = open_head(folder)
    assert opened.head.depth_max == 2
    walk = Walk(opened, drafts=1)
    first = reference_of(family, opened)
    opened.tensors = {name: other.get(name, held) for name, held in opened.tensors.items()}
    reference = ReferenceChain((first, reference_of(family, opened)), of_target=False)
    for count in (1, 3, 1, 1, 5):
        found = walk.draft(walk.absorb(count), 1)
        assert np.abs(found - walk.wanted(reference, 1)).max() < ALLOWED
        walk.settle(walk.pairs)
        assert walk.lengths == [walk.pairs, walk.pairs - 1]
