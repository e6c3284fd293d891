"""A prompt that begins as another did gets back just what a fresh reading of it would have made, and reads the rest.

On a table model, whose caches hold the ids themselves: what they remember is compared with plain Python.
"""

from __future__ import annotations

import pytest
from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.blocks import PASSES, RESTORES, Block
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.request import Request
from mtplxd.families.load import LoadedModel
from mtplxd.families.pieces import Piece
from mtplxd.platform.mlx import mx
from mtplxd.store.planner import FRESH
from support.prefixes import (
    BLOCK,
    ask,
    differences,
    finish,
    prefixes,
    read,
    read_alone,
    table_model,
    tokens_of,
)
from support.table_model import TableHead, read_slots

SHARED = tokens_of(300, seed=1)


@pytest.fixture
def model() -> LoadedModel:
    return table_model()


def parted(at: int, length: int, seed: int = 9) -> list[int]:
    """As SHARED up to `at`, with another token there and after it."""
    other = tokens_of(length - at, seed)
    other[0] = (SHARED[at] + 1) % 5
    return SHARED[:at] + other


def assert_read(batch: Batch, request: Request) -> None:
    """The caches hold the prompt's tokens and pairs, and the newest pair is pending."""
    head, [row], prompt = request.model.head, batch.rows, request.prompt
    assert isinstance(head, TableHead)
    pairs = head.pairs_of(prompt)
    assert read_slots(batch.cache[0]) == prompt[:-1]
    assert read_slots(batch.head_cache[0]) == pairs[:-1]
    assert row.pending is not None
    assert row.pending.tokens == prompt[-1:]
    [tap] = row.pending.joined()
    assert int(tap[0, 0, 0].item()) == head.target.state_after(prompt[:-1])


@pytest.mark.parametrize("at", [63, 64, 65, 100, 127, 128, 129, 191, 192, 250])
def test_every_whole_block_in_common_is_restored(model: LoadedModel, at: int) -> None:
    shared, _ = prefixes()
    read(shared, ask(model, SHARED))
    request = ask(model, parted(at, 280))
    batch, prefill = read(shared, request)
    assert prefill.begin == at // BLOCK * BLOCK
    assert_read(batch, request)
    assert differences(batch, read_alone(request)) == []


@pytest.mark.parametrize("at", [64, 128, 192])
def test_the_pair_at_the_border_is_made_with_the_token_that_follows_here(model: LoadedModel, at: int) -> None:
    """The head's slots hold pairs of a hidden state and the token after it: at a border that token is another one."""
    shared, _ = prefixes()
    read(shared, ask(model, SHARED))
    request = ask(model, parted(at, at + 40))
    batch = open_batch(request)
    prefill = shared.seek(request).begin(batch)
    [row] = batch.rows
    assert prefill.done == at
    assert len(read_slots(batch.head_cache[0])) == at - 1
    assert row.pending is not None
    assert row.pending.tokens == [request.prompt[at]] != [SHARED[at]]
    finish(prefill)
    assert_read(batch, request)


@pytest.mark.parametrize("length", [2, 3, 17, 63, 64, 65, 66, 128, 129, 130, 300])
def test_the_same_prompt_again_reads_nothing_but_its_last_token(model: LoadedModel, length: int) -> None:
    shared, _ = prefixes()
    read(shared, ask(model, SHARED[:length]))
    request = ask(model, SHARED[:length])
    batch, prefill = read(shared, request)
    assert prefill.begin == prefill.total == length - 1
    assert_read(batch, request)
    assert differences(batch, read_alone(request)) == []


@pytest.mark.parametrize(
    ("stored", "length", "restored"),
    [
        (300, 129, 128),  # the last token of a prompt is always read
        (300, 128, 64),
        (300, 65, 64),
        (300, 64, 0),
        (129, 300, 128),
        (100, 300, 99),  # behind all that the other one read
        (100, 101, 99),
        (100, 100, 99),
        (100, 99, 64),
        (65, 66, 64),
    ],
)
def test_a_prompt_that_ends_elsewhere_gets_what_ends_before_its_last_token(
    model: LoadedModel, stored: int, length: int, restored: int
) -> None:
    shared, _ = prefixes()
    read(shared, ask(model, SHARED[:stored]))
    request = ask(model, SHARED[:length])
    batch, prefill = read(shared, request)
    assert prefill.begin == restored
    assert_read(batch, request)


def test_what_goes_on_behind_a_tail_makes_the_whole_block_there(model: LoadedModel) -> None:
    shared, _ = prefixes()
    read(shared, ask(model, SHARED[:100]))
    longer, prefill = read(shared, ask(model, SHARED[:250]))
    assert prefill.begin == 99
    request = ask(model, parted(200, 240))
    batch, prefill = read(shared, request)
    assert prefill.begin == 192
    assert_read(batch, request)
    assert longer.cache[0].lengths == [249]


@pytest.mark.parametrize("limit", [1, 16, 32, 48, 64, 100, 128, 512])
@pytest.mark.parametrize("other", [16, 64, 512])
def test_chunks_of_any_length_keep_and_restore_alike(model: LoadedModel, limit: int, other: int) -> None:
    shared, _ = prefixes()
    read(shared, ask(model, SHARED), limit)
    request = ask(model, parted(200, 290))
    batch, prefill = read(shared, request, other)
    assert prefill.begin == 192
    assert_read(batch, request)


def test_positions_got_back_and_positions_run_are_all_of_the_prompt(model: LoadedModel) -> None:
    shared, index = prefixes()
    counts = model.target.counts  # type: ignore[attr-defined]
    for prompt, expected in ((SHARED, 0), (parted(130, 260), 128), (SHARED, 299), (parted(10, 50), 0)):
        counts.clear()
        _, prefill = read(shared, ask(model, prompt))
        assert prefill.begin == expected
        assert prefill.begin + sum(counts) == len(prompt) - 1
    assert (index.counts.hits, index.counts.misses, index.counts.positions) == (2, 2, 128 + 299)


def test_a_prompt_that_was_stopped_half_way_leaves_what_it_read(model: LoadedModel) -> None:
    shared, _ = prefixes()
    request = ask(model, SHARED)
    prefill = shared.seek(request).begin(open_batch(request))
    for _ in range(3):
        prefill.step(BLOCK)
    assert prefill.done == 192
    again = ask(model, SHARED)
    batch, prefill = read(shared, again)
    assert prefill.begin == 192
    assert_read(batch, again)


def test_what_another_reads_beside_it_changes_nothing(model: LoadedModel) -> None:
    shared, _ = prefixes()
    requests = [ask(model, parted(at, 280, seed=at)) for at in (70, 140, 210)] + [ask(model, SHARED)]
    batches = [open_batch(request) for request in requests]
    running = [shared.seek(request).begin(batch) for request, batch in zip(requests, batches, strict=True)]
    while any(not one.finished for one in running):
        for one, limit in zip(running, (16, 48, 64, 128), strict=True):
            one.step(limit)
    for request, batch in zip(requests, batches, strict=True):
        assert_read(batch, request)
        again = ask(model, request.prompt)
        batch, prefill = read(shared, again)
        assert prefill.begin == prefill.total
        assert_read(batch, again)


def test_a_row_that_drafts_takes_the_bodys_part_from_a_plain_one_and_its_head_begins_anew(
    model: LoadedModel,
) -> None:
    """All it must read are the last positions, for the head to draft from; what the head holds are true pairs."""
    shared, _ = prefixes()
    batch, _ = read(shared, ask(model, SHARED, depth=0))
    assert batch.rows[0].pending is None
    drafting = ask(model, SHARED)
    batch, prefill = read(shared, drafting)
    [row], head = batch.rows, drafting.model.head
    assert isinstance(head, TableHead)
    assert prefill.begin == row.dropped_pairs == (len(SHARED) - 1 - FRESH) // BLOCK * BLOCK
    assert read_slots(batch.cache[0]) == SHARED[:-1]
    assert read_slots(batch.head_cache[0]) == head.pairs_of(SHARED)[prefill.begin : -1]
    assert row.pending is not None
    assert row.pending.tokens == SHARED[-1:]
    assert row.absorbed == len(read_slots(batch.head_cache[0]))


def test_what_a_head_that_began_anew_holds_is_kept_for_nobody(model: LoadedModel) -> None:
    shared, _ = prefixes()
    read(shared, ask(model, SHARED, depth=0))
    for _ in range(2):
        _, prefill = read(shared, ask(model, SHARED))
        assert prefill.begin == 192
    assert read(shared, ask(model, SHARED, depth=0))[1].begin == 299


def test_a_reproducible_row_that_drafts_takes_nothing_without_the_heads_part(model: LoadedModel) -> None:
    shared, _ = prefixes()
    read(shared, ask(model, SHARED, depth=0, reproducible=True))
    batch, prefill = read(shared, request := ask(model, SHARED, reproducible=True))
    assert prefill.begin == 0
    assert_read(batch, request)
    for depth in (0, 2):
        assert read(shared, ask(model, SHARED, depth=depth, reproducible=True))[1].begin == 256


def test_a_plain_row_takes_all_from_one_that_drafts(model: LoadedModel) -> None:
    shared, _ = prefixes()
    read(shared, ask(model, SHARED))
    batch, prefill = read(shared, ask(model, SHARED, depth=0))
    assert prefill.begin == prefill.total
    assert read_slots(batch.cache[0]) == SHARED[:-1]


def test_a_plain_row_in_between_leaves_the_heads_part_where_it_is(model: LoadedModel) -> None:
    shared, index = prefixes()
    read(shared, ask(model, SHARED))
    before = index.nbytes
    read(shared, ask(model, parted(200, 290), depth=0))
    assert index.nbytes > before
    for prompt, expected in ((SHARED, 299), (parted(200, 290), 192)):
        batch, prefill = read(shared, request := ask(model, prompt))
        assert prefill.begin == expected
        assert_read(batch, request)


def test_a_reproducible_row_shares_whole_blocks_with_its_like_alone(model: LoadedModel) -> None:
    shared, index = prefixes()
    read(shared, ask(model, SHARED))
    before = index.counts.blocks
    for expected in (0, 256, 256):
        request = ask(model, SHARED, reproducible=True)
        batch, prefill = read(shared, request)
        assert prefill.begin == expected
        assert_read(batch, request)
    assert index.counts.blocks == before + 4  # no tail
    other = ask(model, parted(150, 280))
    assert read(shared, other)[1].begin == 128  # from the first one of all
    fixed = ask(model, parted(64, 200, seed=77), reproducible=True)
    read(shared, fixed)
    assert shared.seek(ask(model, fixed.prompt)).known == 64


def test_two_models_never_share(model: LoadedModel) -> None:
    shared, _ = prefixes()
    read(shared, ask(model, SHARED))
    assert shared.seek(ask(model, SHARED)).known == 299
    assert shared.seek(ask(table_model(), SHARED)).known == 0


def test_a_model_that_leaves_memory_takes_its_blocks_along(model: LoadedModel) -> None:
    shared, index = prefixes()
    other = table_model()
    for one in (model, other):
        read(shared, ask(one, SHARED))
        read(shared, ask(one, SHARED, reproducible=True))
    before = index.nbytes
    shared.forget(model)
    assert index.nbytes * 2 == before
    assert shared.seek(ask(model, SHARED)).known == 0
    assert shared.seek(ask(other, SHARED)).known == 299
    shared.forget(other)
    assert (index.nbytes, index.counts.blocks) == (0, 0)


def test_without_room_prompts_are_read_as_ever(model: LoadedModel) -> None:
    shared, index = prefixes(0)
    for _ in range(2):
        request = ask(model, SHARED)
        sought, batch = shared.seek(request), open_batch(request)
        prefill = finish(sought.begin(batch))
        assert prefill.begin == 0
        assert sought.asked(prefill).keeps == 0
        assert_read(batch, request)
    assert index.counts.blocks == 0


def test_what_finds_no_room_ends_the_keeping_and_says_how_far_it_went(model: LoadedModel) -> None:
    shared, index = prefixes()
    read(shared, ask(model, SHARED[:65]))
    block = index.nbytes
    shared, index = prefixes(2 * block + block // 2)
    request = ask(model, SHARED)
    sought, batch = shared.seek(request), open_batch(request)
    prefill = finish(sought.begin(batch))
    assert sought.asked(prefill).keeps == 128
    assert index.nbytes <= index.limit
    assert_read(batch, request)
    again, prefill = read(shared, ask(model, SHARED))
    assert prefill.begin == 128
    assert differences(again, batch) == []


def test_a_mark_ends_a_chunk_where_others_part(model: LoadedModel) -> None:
    request = ask(model, SHARED)
    prefill = Prefill(batch := open_batch(request), SHARED)
    prefill.marks |= {128, 150}
    ends = []
    while not prefill.finished:
        prefill.step(512)
        ends.append(prefill.done)
    assert ends == [128, 150, 299]
    assert_read(batch, request)


def piece(*, whole: bool) -> tuple[Piece, ...]:
    return (Piece(0, BLOCK, whole=whole),)


def test_a_block_joined_with_an_older_one_loses_nothing_that_only_one_of_them_has() -> None:
    """A plain row leaves no head's part; a row that read past a block leaves no state there."""
    head, taps = piece(whole=True), (mx.zeros((1, 1, 4)),)
    drafting, plain = Block(piece(whole=False), head, taps), Block(piece(whole=True))
    assert plain.grades == (RESTORES, None)
    assert drafting.grades == (PASSES, RESTORES)
    for one, old in ((plain, drafting), (drafting, plain)):
        joined = one.joined(old)
        assert joined.grades == (RESTORES, RESTORES)
        assert joined.head is head
        assert joined.taps is taps
        assert joined.betters(old)
        assert not old.betters(joined)
    assert plain.joined(None) is plain
    assert plain.betters(None)


def test_the_heads_part_of_a_new_block_goes_with_its_own_taps() -> None:
    one, old = (Block(piece(whole=True), piece(whole=True), (mx.zeros((1, 1, 4)),)) for _ in range(2))
    joined = one.joined(old)
    assert joined.head is one.head
    assert joined.taps is one.taps
