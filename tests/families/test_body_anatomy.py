"""Hidden states, logits and taps of every class are the class's own, computed on caches that can go back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.anatomy import find_anatomy
from mtplxd.families.body import Body
from mtplxd.families.load import load_model
from mtplxd.families.load_body import load_body
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import Array, mx, nn
from support.bodies import OTHERS, stock_logits, stock_model, write_body
from support.families import TINY, write_checkpoint

CLASSES = [*TINY, *OTHERS]
TOKENS = [(place * 37 + 11) % 290 + 3 for place in range(40)]


def folder_of(name: str, path: Path, **changes: Any) -> Path:
    if name in OTHERS:
        return write_body(path, OTHERS[name] | changes)
    return write_checkpoint(path, name, head=False, body="mlx", place="single", config=changes or None)


def body_of(folder: Path, taps: tuple[int | str, ...] = ()) -> Body:
    """A body with its weights in float32, as a load leaves it."""
    target = load_model(read_pack(folder), plain=True).target
    assert isinstance(target, Body)
    return Body(target.model, taps) if taps else target


def run(body: Body, parts: list[list[int]]) -> list[Array]:
    cache = body.make_cache(1)
    return [body.logits(body.run(mx.array([tokens]), cache)[0])[0] for tokens in parts]


@pytest.mark.parametrize("name", CLASSES)
def test_logits_are_those_of_the_class_on_its_own_caches(name: str, tmp_path: Path) -> None:
    folder = folder_of(name, tmp_path / "pack")
    parts = [TOKENS[:20], TOKENS[20:21], TOKENS[21:22], TOKENS[22:26], TOKENS[26:27], TOKENS[27:]]
    expected = stock_logits(stock_model(folder), parts)
    for found, logits in zip(run(body_of(folder), parts), expected, strict=True):
        assert np.abs(np.array(found) - np.array(logits)).max() <= 2e-4 * np.abs(np.array(logits)).max()


@pytest.mark.parametrize("name", CLASSES)
def test_a_rolled_back_forward_leaves_no_trace_in_any_class(name: str, tmp_path: Path) -> None:
    body = body_of(folder_of(name, tmp_path / "pack"))
    whole = np.array(run(body, [TOKENS[:30], TOKENS[30:]])[1])
    for kept in (1, 2, 3, 4):
        for following in (1, 10 - kept):
            cache = body.make_cache(1)
            body.run(mx.array([TOKENS[:30]]), cache)
            body.run(mx.array([[*TOKENS[30 : 30 + kept], *[7] * (4 - kept)]]), cache)
            for layer in cache:
                layer.roll_back([30 + kept])
            hidden, _ = body.run(mx.array([TOKENS[30 + kept : 30 + kept + following]]), cache)
            found = np.array(body.logits(hidden)[0])
            expected = whole[kept : kept + following]
            assert np.abs(found - expected).max() <= 2e-4 * np.abs(whole).max()
            assert {tuple(layer.lengths) for layer in cache} == {(30 + kept + following,)}


@pytest.mark.parametrize("name", CLASSES)
def test_the_parts_are_found_and_the_norm_is_the_last_thing_that_runs(name: str, tmp_path: Path) -> None:
    folder = folder_of(name, tmp_path / "pack")
    body = body_of(folder, ("pre", "post"))
    hidden, (pre, post) = body.run(mx.array([TOKENS]), body.make_cache(1))
    assert post is hidden
    assert np.array_equal(np.array(body.final_norm(pre)), np.array(hidden))
    assert not np.array_equal(np.array(pre), np.array(hidden))
    assert body.embedding.weight.shape == body.output_weight.shape == (body.vocab_size, hidden.shape[-1])


def test_a_tap_of_the_norm_keeps_no_graph_and_leaves_the_numbers_alone(tmp_path: Path) -> None:
    folder = folder_of("step3p5", tmp_path / "pack")
    tapped, plain = body_of(folder, ("pre",)), body_of(folder)
    found, expected = (np.array(run(body, [TOKENS])[0]) for body in (tapped, plain))
    assert np.array_equal(found, expected)
    assert [recorder.kept for recorder in tapped._recorders] == [None]


@pytest.mark.parametrize("name", ["gemma4", "granite", "cohere2"])
def test_caps_and_scales_of_the_logits_are_kept(name: str, tmp_path: Path) -> None:
    body = body_of(folder_of(name, tmp_path / "pack"))
    hidden = body.run(mx.array([TOKENS]), body.make_cache(1))[0]
    raw = np.array(hidden @ body.output_weight.T)
    expected = {"gemma4": 30 * np.tanh(raw / 30), "granite": raw / 4, "cohere2": raw * 0.25}[name]
    assert np.abs(np.array(body.logits(hidden)) - expected).max() <= 1e-4


def test_a_class_that_ignores_the_tie_uses_the_matrix_it_has(tmp_path: Path) -> None:
    body = body_of(folder_of("glm4_moe", tmp_path / "pack", tie_word_embeddings=True))
    assert not mx.array_equal(body.output_weight, body.embedding.weight)
    hidden = body.run(mx.array([TOKENS]), body.make_cache(1))[0]
    expected = np.array(hidden @ body.output_weight.T)
    assert np.abs(np.array(body.logits(hidden)) - expected).max() <= 1e-4


def test_a_tied_body_has_one_matrix(tmp_path: Path) -> None:
    body = body_of(folder_of("gemma4", tmp_path / "pack"))
    assert body.output_weight is body.embedding.weight


def test_logits_come_from_hidden_states_of_any_rank(tmp_path: Path) -> None:
    body = body_of(folder_of("qwen3_5", tmp_path / "pack"))
    hidden = body.run(mx.array([TOKENS]), body.make_cache(1))[0]
    whole = np.array(body.logits(hidden))
    assert np.abs(np.array(body.logits(hidden[:, 3])) - whole[:, 3]).max() <= 1e-5
    assert np.abs(np.array(body.logits(hidden[0, 3])) - whole[0, 3]).max() <= 1e-5


def test_a_quantised_output_matrix_is_unpacked_where_its_rows_are_asked_for(tmp_path: Path) -> None:
    model = load_body(read_pack(folder_of("mimo", tmp_path / "pack")))
    plain = Body(model).output_weight
    nn.quantize(model, group_size=32, bits=8)
    packed = Body(model)
    assert packed.vocab_size == plain.shape[0]
    assert packed.output_weight.shape == plain.shape
    assert np.abs(np.array((packed.output_weight - plain).astype(mx.float32))).max() <= 0.02


def test_a_class_that_is_built_some_other_way_is_refused() -> None:
    class Odd(nn.Module):  # type: ignore[misc]
        model_type = "odd"

        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 4)

    with pytest.raises(FailedPrecondition, match="odd"):
        find_anatomy(Odd())
