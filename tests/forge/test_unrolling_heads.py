"""Published heads in training are run as serving runs them: the same states at every position and every depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.heads.chain import ChainHead
from mtplxd.forge.learner import Learner
from mtplxd.platform.mlx import mx
from support.families import FAMILIES, VOCAB, write_checkpoint
from support.head_rig import open_head

POSITIONS, DEPTHS, ROWS = 7, 3, 2
SPARSE = ("deepseek_v32", "glm_moe_dsa")
"""Those whose drafts cannot be told apart in one pass; they are trained at depth 1."""


def decoded(head: Any, tokens: Any, taps: Any, pair: int, depths: int) -> list[np.ndarray[Any, Any]]:
    """Logits [V] of each depth behind the pairs up to `pair`, drafts accepted, as decoding meets them."""
    cache = head.make_cache(1, [])
    state = head.absorb(tokens[:, 1 : pair + 2], (taps[:, : pair + 1],), cache)[:, -1:]
    for lag, layer in enumerate(cache):
        layer.roll_back([max(0, pair + 1 - lag)])
    found = [np.array(head.logits(state)[0, 0].astype(mx.float32))]
    for depth in range(1, depths):
        state = head.extend(tokens[:, pair + depth + 1 : pair + depth + 2], state, cache)
        found.append(np.array(head.logits(state)[0, -1].astype(mx.float32)))
    return found


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "gemma4"])
def test_logits_of_every_depth_are_those_of_decoding(family: str, tmp_path: Path) -> None:
    opened = open_head(write_checkpoint(tmp_path, family))
    learner = Learner(opened.head)
    chained = isinstance(opened.head, ChainHead)
    assert learner.depths == (3 if chained else 1 if family in SPARSE else 99)
    depths = min(DEPTHS, learner.depths)
    rng = np.random.default_rng(6)
    tokens = rng.integers(0, VOCAB, (ROWS, POSITIONS + depths)).astype(np.int32)
    hidden = opened.embedding.shape[1]
    taps = rng.normal(size=(ROWS, POSITIONS, 1, hidden)).astype(np.float16)
    states = learner.states(tokens, taps, depths)
    made = [
        np.array(learner.logits(state, depth).astype(mx.float32)) for depth, state in enumerate(states, 1)
    ]
    for row in range(ROWS):
        known = mx.array(tokens[row : row + 1]), mx.array(taps[row : row + 1, :, 0].astype(np.float32))
        for pair in range(depths, POSITIONS):
            wanted = decoded(opened.head, *known, pair, depths)
            for depth in range(depths):
                scale = np.abs(wanted[depth]).max()
                difference = np.abs(made[depth][row, pair] - wanted[depth]).max()
                assert difference <= 2e-3 * scale, (row, pair, depth)


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_5", "step3p5"])
def test_some_chains_of_a_published_head_are_those_of_all(family: str, tmp_path: Path) -> None:
    opened = open_head(write_checkpoint(tmp_path, family))
    learner = Learner(opened.head)
    assert learner.recursive != isinstance(opened.head, ChainHead)
    rng = np.random.default_rng(7)
    tokens = rng.integers(0, VOCAB, (ROWS, POSITIONS + DEPTHS)).astype(np.int32)
    taps = rng.normal(size=(ROWS, POSITIONS, 1, opened.embedding.shape[1])).astype(np.float16)
    depths = min(DEPTHS, learner.depths)
    some = slice(2, 5) if learner.recursive else slice(None)
    whole, cut = learner.states(tokens, taps, depths), learner.states(tokens, taps, depths, some)
    for one, other in zip(whole[1:], cut[1:], strict=True):
        wanted = np.array(one[:, some].astype(mx.float32))
        np.testing.assert_allclose(
            np.array(other.astype(mx.float32)), wanted, atol=2e-3 * np.abs(wanted).max()
        )


def test_a_drafter_without_keys_of_its_own_is_not_trained() -> None:
    class Drafter:
        module = None

    with pytest.raises(FailedPrecondition, match="cannot be trained"):
        Learner(Drafter())
