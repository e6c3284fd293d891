"""A chunk that others wait for is computed a few layers at a time: what comes of it is the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mtplxd.engine import prefill as reading
from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.prefill import PARTS, Prefill
from mtplxd.engine.recall import Recall
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import mx
from support.listening import ask, decode

PROMPT = [5 + 7 * place % 40 for place in range(150)]


def always() -> bool:
    return True


def request_of(model: LoadedModel, *, reproducible: bool = False, **others: Any) -> Request:
    return ask(model, PROMPT, depth=2, sampler=SamplerSettings(0.0, reproducible=reproducible), **others)


def numbers(batch: Batch) -> list[np.ndarray]:
    """All that the caches hold of a row, and the newest pair."""
    held = [layer.held(1000) for layer in (*batch.cache, *batch.head_cache)]  # type: ignore[attr-defined]
    pending = batch.rows[0].pending
    assert pending is not None
    return [np.array(array) for pair in held for array in pair] + [
        np.array(part) for part in pending.parts[0]
    ]


def read_whole(request: Request, limit: int) -> Batch:
    running = Prefill(batch := open_batch(request), request.prompt)
    while not running.finished:
        running.step(limit)
    return batch


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("limit", [16, 64, 512])
def test_parts_make_the_numbers_that_the_whole_makes(
    tiny_model: LoadedModel, limit: int, reproducible: bool
) -> None:
    request = request_of(tiny_model, reproducible=reproducible)
    expected = numbers(read_whole(request, limit))
    running, calls = Prefill(batch := open_batch(request), PROMPT), 0
    while not running.finished:
        running.step(limit, always)
        calls += 1
    assert calls > len(PROMPT) // limit
    for found, one in zip(numbers(batch), expected, strict=True):
        assert np.array_equal(found, one)


def test_positions_count_once_their_chunk_is_there(tiny_model: LoadedModel) -> None:
    layers = len(tiny_model.target.make_cache(1))
    running = Prefill(open_batch(request_of(tiny_model)), PROMPT)
    for begin, end in ((0, 64), (64, 128), (128, 149)):
        for _ in range(layers - 1):
            assert running.step(64, always) == 0
            assert (running.done, running.within) == (begin, True)
        assert running.step(64, always) == end - begin
        assert (running.done, running.within) == (end, False)
    assert running.finished


def test_a_chunk_in_parts_is_as_long_as_was_asked_when_it_began(tiny_model: LoadedModel) -> None:
    running = Prefill(open_batch(request_of(tiny_model)), PROMPT)
    assert running.step(64, always) == 0
    while running.within:
        running.step(1, always)
    assert running.done == 64


def test_a_chunk_begun_in_parts_is_finished_at_once_where_nobody_waits_any_more(
    tiny_model: LoadedModel,
) -> None:
    request = request_of(tiny_model)
    running = Prefill(batch := open_batch(request), PROMPT)
    running.step(64, always)
    assert running.step(64) == 64
    running.step(512)
    assert running.finished
    for found, one in zip(numbers(batch), numbers(read_whole(request, 512)), strict=True):
        assert found.shape == one.shape


def test_without_anybody_who_waits_a_chunk_is_one_piece_of_work(
    tiny_model: LoadedModel, evaluated: list[int]
) -> None:
    Prefill(open_batch(request_of(tiny_model)), PROMPT).step(512)
    assert len(evaluated) == 1


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many layers each evaluation of a chunk waited for; the last of a chunk waits for all, most being there."""
    seen: list[int] = []

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return getattr(mx, name)

        def eval(self, *arrays: Any) -> None:
            seen.append(len(arrays[0]))
            mx.eval(*arrays)

    monkeypatch.setattr(reading, "mx", Spy())
    return seen


@pytest.mark.parametrize("most", [1, 2, 3, PARTS])
def test_no_part_has_more_than_its_share_of_the_layers(
    tiny_model: LoadedModel, evaluated: list[int], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(reading, "PARTS", most)
    layers = len(tiny_model.target.make_cache(1))
    running = Prefill(open_batch(request_of(tiny_model)), PROMPT)
    calls = 0
    while not calls or running.within:
        running.step(64, always)
        calls += 1
        assert len(evaluated) == calls
    assert calls <= most
    assert calls == -(-layers // -(-layers // min(most, layers)))
    assert all(count <= -(-layers // most) for count in evaluated[:-1])


def stopping_after(parts: int) -> Callable[[], bool]:
    count = iter(range(1, 1000))
    return lambda: next(count) >= parts


def test_more_than_one_part_is_done_while_there_is_time(
    tiny_model: LoadedModel, evaluated: list[int]
) -> None:
    running = Prefill(open_batch(request_of(tiny_model)), PROMPT)
    running.step(64, stopping_after(2))
    assert len(evaluated) == min(2, len(tiny_model.target.make_cache(1)))


@pytest.mark.parametrize("reproducible", [False, True])
def test_what_a_row_held_is_computed_again_in_parts(tiny_model: LoadedModel, reproducible: bool) -> None:
    request = request_of(tiny_model, reproducible=reproducible, max_tokens=40, ignore_eos=True)
    decoder, _ = decode(request)
    whole = Recall(request, decoder.row)
    while not whole.finished:
        whole.step(32)
    expected = numbers(whole.batch)
    again = Recall(request, decoder.row)
    while not again.finished:
        again.step(32, always)
    for found, one in zip(numbers(again.batch), expected, strict=True):
        assert np.array_equal(found, one)
