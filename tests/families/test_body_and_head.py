"""Taps are the layers' own outputs, and the head computes the algebra it is documented with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mtplxd.families.adapter import AdapterHead
from mtplxd.families.body import Body
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx, tree
from support.tiny_pack import make_tiny_pack

TOKENS = mx.array([[5, 9, 11, 200, 31, 4, 8]])


@pytest.fixture(scope="module")
def plain(tiny_model: LoadedModel) -> LoadedModel:
    return load_model(tiny_model.pack, plain=True)


def layer_outputs(body: Body) -> list[np.ndarray]:
    """The hidden after each layer by the layers themselves, the last after the final norm."""
    inner = body.model.model
    hidden, found = inner.embed_tokens(TOKENS), []
    for layer in inner.layers:
        hidden = layer(hidden, "causal", None)
        found.append(np.array(hidden))
    return [*found[:-1], np.array(inner.norm(hidden))]


@pytest.mark.parametrize("taps", [(1,), (2, 4), (1, 2, 3, 4), (4,), ()])
def test_taps_are_the_outputs_of_their_layers(
    tiny_model: LoadedModel, plain: LoadedModel, taps: tuple[int, ...]
) -> None:
    outputs = layer_outputs(plain.target)  # type: ignore[arg-type]
    body = Body(load_model(tiny_model.pack, plain=True).target.model, taps)  # type: ignore[attr-defined]
    hidden, recorded = body.run(TOKENS, body.make_cache(1))
    assert len(recorded) == len(taps)
    for tap, place in zip(recorded, taps, strict=True):
        assert np.abs(np.array(tap) - outputs[place - 1]).max() <= 1e-6
    assert np.abs(np.array(hidden) - outputs[-1]).max() <= 1e-6


def test_recording_changes_no_logits_and_hides_only_the_recorded_layers_parameters(
    tiny_model: LoadedModel, plain: LoadedModel
) -> None:
    with_taps, without = (
        np.array(model.target.logits(model.target.run(TOKENS, model.target.make_cache(1))[0]))
        for model in (tiny_model, plain)
    )
    assert np.array_equal(with_taps, without)
    recorded = Body(load_model(tiny_model.pack, plain=True).target.model, (2,))  # type: ignore[attr-defined]
    untouched = {name for name, _ in tree.tree_flatten(plain.target.model.parameters())}  # type: ignore[attr-defined]
    kept = {name for name, _ in tree.tree_flatten(recorded.model.parameters())}
    assert kept == {name for name in untouched if not name.startswith("model.layers.1.")}


def test_a_recorder_keeps_nothing_after_a_run(tiny_model: LoadedModel) -> None:
    tiny_model.target.run(TOKENS, tiny_model.target.make_cache(1))
    assert [recorder.kept for recorder in tiny_model.target._recorders] == [None]  # type: ignore[attr-defined]


def rms(x: np.ndarray, weight: Any, eps: float = 1e-5) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * np.array(weight)


def test_a_true_pair_joins_the_token_and_every_tap(tiny_model: LoadedModel) -> None:
    head = tiny_model.head
    assert isinstance(head, AdapterHead)
    module = head.module
    _, taps = tiny_model.target.run(TOKENS, tiny_model.target.make_cache(1))
    embedded = np.array(tiny_model.target.embedding(TOKENS))  # type: ignore[attr-defined]
    normed = [rms(np.array(tap), norm.weight) for tap, norm in zip(taps, module.hnorm, strict=True)]
    joined = np.concatenate([rms(embedded, module.enorm.weight), *normed], -1) @ np.array(module.fc.weight).T
    found = np.array(module.join_taps(mx.array(embedded), taps))
    assert np.abs(found - joined).max() <= 1e-5
    state = head.absorb(TOKENS, taps, head.make_cache(1, []))
    expected = rms(
        np.array(module.layers[0](mx.array(joined.astype(np.float32)), "causal", None)), module.norm.weight
    )
    assert np.abs(np.array(state) - expected).max() <= 1e-4


def test_a_recursion_pair_puts_z_in_the_last_taps_place(tiny_model: LoadedModel) -> None:
    head = tiny_model.head
    assert isinstance(head, AdapterHead)
    module = head.module
    rng = np.random.default_rng(0)
    embedded, state = (rng.normal(size=(2, 1, 64)).astype(np.float32) for _ in range(2))
    absent = [np.broadcast_to(np.array(vector), embedded.shape) for vector in module.absent]
    parts = [rms(embedded, module.enorm.weight), *absent, rms(state, module.hnorm[-1].weight)]
    expected = np.concatenate(parts, -1) @ np.array(module.fc.weight).T
    assert np.abs(np.array(module.join_state(mx.array(embedded), mx.array(state))) - expected).max() <= 1e-5


def test_absorbing_pairs_at_once_or_in_parts_gives_the_same_state(tiny_model: LoadedModel) -> None:
    head = tiny_model.head
    assert head is not None
    _, taps = tiny_model.target.run(TOKENS, tiny_model.target.make_cache(1))
    whole = np.array(head.absorb(TOKENS, taps, head.make_cache(1, [])))
    cache, parts = head.make_cache(1, []), []
    for begin, end in ((0, 3), (3, 4), (4, 7)):
        parts.append(
            np.array(head.absorb(TOKENS[:, begin:end], tuple(tap[:, begin:end] for tap in taps), cache))
        )
    assert np.abs(np.concatenate(parts, 1) - whole).max() <= 1e-5


def test_draft_logits_are_the_rows_of_the_draft_vocabulary(tiny_model: LoadedModel) -> None:
    head, body = tiny_model.head, tiny_model.target
    assert isinstance(head, AdapterHead)
    state = mx.array(np.random.default_rng(0).normal(size=(1, 1, 64)).astype(np.float32))
    ids = np.array(head.draft_vocab)
    full = np.array(body.logits(state))
    assert np.abs(np.array(head.logits(state)) - full[..., ids]).max() <= 1e-5


def test_bytes_are_those_of_the_arrays(tiny_model: LoadedModel, plain: LoadedModel) -> None:
    parameters = tree.tree_flatten(plain.target.model.parameters())  # type: ignore[attr-defined]
    assert tiny_model.bytes_body == plain.bytes_body == sum(array.nbytes for _, array in parameters)
    assert (plain.head, plain.bytes_head, plain.depth_max) == (None, 0, 0)
    assert tiny_model.bytes_head > 0


def test_a_pack_without_a_head_loads_and_has_no_depth(tmp_path: Any) -> None:
    model = load_model(read_pack(make_tiny_pack(tmp_path / "bare", head=False)))
    assert (model.head, model.depth_max) == (None, 0)
