"""A prompt stands between any two chunks as a row does between rounds, however it is cut, and can go on as it likes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from mtplxd.engine import prefill as reading
from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.prefill import CHUNK, FIXED_CHUNK, Prefill, prefill
from mtplxd.engine.request import Request
from mtplxd.families.load import LoadedModel
from mtplxd.families.protocols import Taps
from support.prefixes import Counting, ask, model_of, table_model, tokens_of
from support.table_model import TableHead, TableTarget, read_slots

PROMPT = tokens_of(300, seed=4)


@pytest.fixture
def model() -> LoadedModel:
    return table_model()


def ends(prompt: Sequence[int], limits: Sequence[int], fixed: int | None = None) -> list[int]:
    """Where chunks end that are asked for at these limits, over and over."""
    model = table_model()
    running = Prefill(open_batch(ask(model, prompt)), prompt, fixed)
    found = []
    while not running.finished:
        before = running.done
        assert running.step(limits[len(found) % len(limits)]) == running.done - before > 0
        found.append(running.done)
    assert running.step(64) == 0
    return found


def assert_stands(batch: Batch, request: Request, done: int) -> None:
    """Everything up to `done` is there, with the newest pair pending."""
    head, [row] = request.model.head, batch.rows
    assert isinstance(head, TableHead)
    assert read_slots(batch.cache[0]) == request.prompt[:done]
    assert read_slots(batch.head_cache[0]) == head.pairs_of(request.prompt)[: done - 1]
    assert row.pending is not None
    assert row.pending.tokens == [request.prompt[done]]
    assert len(row.pending.parts) == 1
    assert row.dropped_pairs == 0


@pytest.mark.parametrize("limits", [[1], [16], [40], [64], [100], [512], [16, 512, 1, 64, 33]])
def test_between_chunks_a_row_stands_as_between_rounds(model: LoadedModel, limits: list[int]) -> None:
    request = ask(model, PROMPT)
    running = Prefill(batch := open_batch(request), PROMPT)
    turn = 0
    while not running.finished:
        running.step(limits[turn % len(limits)])
        assert_stands(batch, request, running.done)
        turn += 1
    assert running.done == running.total == 299


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([512], [299]),
        ([100], [64, 128, 192, 256, 299]),
        ([64], [64, 128, 192, 256, 299]),
        ([128], [128, 256, 299]),
        ([48], [48, 64, 112, 128, 176, 192, 240, 256, 299]),
        ([16, 512], [16, 299]),
        ([16, 200], [16, 192, 208, 299]),
    ],
)
def test_chunks_that_reach_a_block_end_at_one(limits: list[int], expected: list[int]) -> None:
    assert ends(PROMPT, limits) == expected


@pytest.mark.parametrize("limits", [[1], [16], [64], [65], [512], [16, 300, 64]])
def test_a_fixed_partition_is_the_same_whatever_is_asked_for(limits: list[int]) -> None:
    counts = []
    for length in (2, 64, 65, 66, 128, 129, 300):
        model = table_model()
        running = Prefill(open_batch(ask(model, PROMPT[:length])), PROMPT[:length], FIXED_CHUNK)
        turn = 0
        while not running.finished:
            running.step(limits[turn % len(limits)])
            turn += 1
        counts.append(model.target.counts)  # type: ignore[attr-defined]
    assert counts == [[1], [63], [64], [64, 1], [64, 63], [64, 64], [64] * 4 + [43]]


def test_a_step_of_a_fixed_partition_runs_as_many_chunks_as_the_limit_holds() -> None:
    assert ends(PROMPT, [200], FIXED_CHUNK) == [192, 299]
    assert ends(PROMPT, [1], FIXED_CHUNK) == [64, 128, 192, 256, 299]
    assert ends(PROMPT, [128], FIXED_CHUNK) == [128, 256, 299]


def test_where_a_prompt_ends_changes_no_chunk_of_a_fixed_partition_before_it() -> None:
    long = ends(PROMPT, [1], FIXED_CHUNK)
    for length in (65, 130, 200):
        cut = ends(PROMPT[:length], [1], FIXED_CHUNK)
        assert cut[:-1] == long[: len(cut) - 1]


@pytest.mark.parametrize("there", [1, 10, 64, 100])
def test_a_fixed_partition_goes_on_at_absolute_multiples_wherever_it_was_taken_up(there: int) -> None:
    model = table_model()
    batch = open_batch(request := ask(model, PROMPT))
    Prefill(batch, PROMPT[: there + 1]).step(there)
    counts = model.target.counts  # type: ignore[attr-defined]
    counts.clear()
    running = Prefill(batch, PROMPT, FIXED_CHUNK)
    assert running.begin == there
    while not running.finished:
        running.step(1)
    cuts = [there, *(end for end in (64, 128, 192, 256, 299) if end > there)]
    assert counts == [end - begin for begin, end in pairwise(cuts)]
    assert_stands(batch, request, 299)


@pytest.mark.parametrize("fixed", [None, FIXED_CHUNK])
def test_no_forward_makes_more_scores_than_the_limit(
    fixed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SCORES", 64 * 150)
    model = table_model()
    counts = model.target.counts  # type: ignore[attr-defined]
    running = Prefill(open_batch(ask(model, PROMPT)), PROMPT, fixed)
    while not running.finished:
        before = len(counts)
        running.step(512)
        begin = running.done - sum(counts[before:])
        for count in counts[before:]:
            begin += count
            assert count * begin <= 64 * 150
    assert min(counts) < 64


def test_no_forward_is_longer_than_the_longest_chunk(model: LoadedModel) -> None:
    prompt = tokens_of(1100, 1)
    running = Prefill(open_batch(ask(model, prompt)), prompt)
    while not running.finished:
        running.step(10_000)
    assert model.target.counts == [CHUNK, CHUNK, 75]  # type: ignore[attr-defined]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_prompts_of_hardly_any_token_have_hardly_any_pair(model: LoadedModel, length: int) -> None:
    request = ask(model, PROMPT[:length])
    running = Prefill(batch := open_batch(request), request.prompt)
    while not running.finished:
        running.step(64)
    assert batch.cache[0].lengths == [length - 1]
    if length == 1:
        assert batch.rows[0].pending is None
    else:
        assert_stands(batch, request, length - 1)


def test_a_plain_row_reads_without_its_head(model: LoadedModel) -> None:
    batch = open_batch(request := ask(model, PROMPT))
    batch.rows[0].plain = True
    running = Prefill(batch, PROMPT)
    while not running.finished:
        running.step(64)
    assert read_slots(batch.cache[0]) == request.prompt[:-1]
    assert batch.head_cache[0].lengths == [0]
    assert batch.rows[0].pending is None


def test_what_is_there_already_is_not_read_again(model: LoadedModel) -> None:
    request = ask(model, PROMPT)
    running = Prefill(batch := open_batch(request), PROMPT)
    running.step(100)
    again = Prefill(batch, PROMPT)
    assert again.begin == again.done == 64
    counts = model.target.counts  # type: ignore[attr-defined]
    counts.clear()
    while not again.finished:
        again.step(512)
    assert counts == [299 - 64]
    assert_stands(batch, request, 299)


def test_a_chunk_is_heard_of_once_everything_in_it_is_there(model: LoadedModel) -> None:
    heard: list[tuple[int, int, int]] = []
    request = ask(model, PROMPT)
    batch = open_batch(request)

    def listen(begin: int, end: int, taps: Taps) -> None:
        heard.append((begin, end, taps[0].shape[1]))
        assert running.done == end
        assert_stands(batch, request, end)

    running = Prefill(batch, PROMPT, on_chunk=listen)
    while not running.finished:
        running.step(100)
    assert heard == [(0, 64, 64), (64, 128, 64), (128, 192, 64), (192, 256, 64), (256, 299, 43)]


def test_a_prompt_that_is_left_can_be_taken_up_later(model: LoadedModel) -> None:
    """Two prompts in turn, each on caches of its own: neither sees the other."""
    requests = [ask(model, tokens_of(250, seed)) for seed in (1, 2)]
    batches = [open_batch(request) for request in requests]
    running = [Prefill(batch, request.prompt) for batch, request in zip(batches, requests, strict=True)]
    while any(not one.finished for one in running):
        for one, limit in zip(running, (16, 64), strict=True):
            one.step(limit)
    for batch, request in zip(batches, requests, strict=True):
        assert_stands(batch, request, 249)


def test_the_generator_yields_where_each_chunk_ended() -> None:
    target = TableTarget()
    model = model_of(Counting(target), TableHead(target))
    batch = open_batch(request := ask(model, PROMPT))
    assert list(prefill(batch, PROMPT, 128)) == [128, 256, 299]
    assert_stands(batch, request, 299)
