"""Training runs the head as serving does: same states for true pairs and for every depth of recursion."""

from __future__ import annotations

import numpy as np
import pytest
from mtplxd.families.adapter import AdapterHead, AdapterModule, build_module
from mtplxd.families.body import Body
from mtplxd.families.load import LoadedModel
from mtplxd.forge.unrolling import unroll
from mtplxd.platform.mlx import mx, tree

POSITIONS, DEPTHS = 9, 3


@pytest.fixture
def body(tiny: LoadedModel) -> Body:
    return Body(tiny.target.model, (2, 4))  # type: ignore[attr-defined]


@pytest.fixture
def module(body: Body, rng: np.random.Generator) -> AdapterModule:
    made = build_module(body.model, 2, 48)
    drawn = [
        (n, mx.array(rng.normal(size=a.shape) * 0.2 + ("norm" in n)))
        for n, a in tree.tree_flatten(made.parameters())
    ]
    made.load_weights([(name, array.astype(mx.float32)) for name, array in drawn])
    return made


def test_states_of_every_depth_are_those_of_decoding(
    body: Body, module: AdapterModule, rng: np.random.Generator
) -> None:
    tokens = mx.array(rng.integers(0, 300, (1, POSITIONS + DEPTHS)))
    _, taps = body.run(tokens, body.make_cache(1))
    taps = tuple(tap[:, :POSITIONS] for tap in taps)
    head = AdapterHead(module, body, None, DEPTHS)
    states = unroll(head, tokens, taps, DEPTHS)
    for pair in range(POSITIONS):
        cache = head.make_cache(1, [])
        true = tuple(tap[:, : pair + 1] for tap in taps)
        state = head.absorb(tokens[:, 1 : pair + 2], true, cache)[:, -1:]
        for depth in range(DEPTHS):
            np.testing.assert_allclose(np.array(states[depth][:, pair]), np.array(state[:, 0]), atol=1e-4)
            following = pair + depth + 2
            if depth + 1 < DEPTHS:
                state = head.extend(tokens[:, following : following + 1], state, cache)


def test_rows_do_not_see_each_other(body: Body, module: AdapterModule, rng: np.random.Generator) -> None:
    tokens = mx.array(rng.integers(0, 300, (2, POSITIONS + DEPTHS)))
    _, taps = body.run(tokens, body.make_cache(2))
    taps = tuple(tap[:, :POSITIONS] for tap in taps)
    head = AdapterHead(module, body, None, DEPTHS)
    both = unroll(head, tokens, taps, DEPTHS)
    alone = unroll(head, tokens[1:], tuple(tap[1:] for tap in taps), DEPTHS)
    for together, single in zip(both, alone, strict=True):
        np.testing.assert_allclose(np.array(together[1]), np.array(single[0]), atol=1e-5)


@pytest.mark.parametrize("chains", [slice(0, 3), slice(2, 6), slice(8, 9), slice(0, 9)])
def test_chains_of_some_pairs_are_those_that_all_pairs_have(
    body: Body, module: AdapterModule, rng: np.random.Generator, chains: slice
) -> None:
    tokens = mx.array(rng.integers(0, 300, (2, POSITIONS + DEPTHS)))
    _, taps = body.run(tokens, body.make_cache(2))
    taps = tuple(tap[:, :POSITIONS] for tap in taps)
    head = AdapterHead(module, body, None, DEPTHS)
    every = unroll(head, tokens, taps, DEPTHS)
    some = unroll(head, tokens, taps, DEPTHS, chains)
    np.testing.assert_allclose(np.array(some[0]), np.array(every[0]), atol=1e-5)
    for deeper, whole in zip(some[1:], every[1:], strict=True):
        np.testing.assert_allclose(np.array(deeper), np.array(whole[:, chains]), atol=1e-5)
