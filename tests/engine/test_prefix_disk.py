"""What comes back from the disk is, bit by bit, what a fresh reading makes, for every kind of cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mtplxd.engine import restoring
from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.prefixes import LEAST_WAITING
from mtplxd.engine.request import STORE_OFF, STORE_ON, STORE_WRITE_ONLY, Request
from mtplxd.engine.restoring import Restoring
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from mtplxd.store.planner import FRESH
from support.bodies import OTHERS, write_body
from support.disks import LIMITS, Opened
from support.families import write_checkpoint
from support.prefixes import (
    Counting,
    ask,
    depth_of,
    differences,
    finish,
    read,
    read_alone,
    rounds,
    some,
    table_model,
    tokens_of,
)
from support.table_model import read_slots

KINDS = ["mimo", "glm4_moe_lite", "qwen3_5", "step3p5", "gemma4", "mimo_v2_flash", "falcon_h1", "gpt_oss"]
FIRST = some(200, 1)
PARTED = [*FIRST[:150], *some(60, 2)]
LONGER = [*FIRST, *some(40, 3)]
SHARED = tokens_of(300, seed=1)


@pytest.fixture(autouse=True)
def _await_device() -> Iterator[None]:
    yield
    mx.synchronize()


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp(request.param) / "pack"
    if request.param in OTHERS:
        return load_model(read_pack(write_body(folder, OTHERS[request.param])))
    return load_model(read_pack(write_checkpoint(folder, request.param)))


@pytest.mark.parametrize("reproducible", [False, True])
def test_after_a_restart_it_is_what_a_fresh_reading_makes(
    model: LoadedModel, reproducible: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its blocks are put in place at once or one by one."""
    if not reproducible:
        monkeypatch.setattr(restoring, "SEGMENT", 1)
    depth = depth_of(model)
    before = Opened(tmp_path)
    read(before.prefixes, ask(model, FIRST, depth=depth, reproducible=reproducible))
    before.close()
    for prompt in (PARTED, LONGER):
        after = Opened(tmp_path)
        request = ask(model, prompt, depth=depth, reproducible=reproducible)
        batch, prefill = read(after.prefixes, request)
        assert prefill.begin == (128 if prompt is PARTED else 192 if reproducible else 199)
        alone = read_alone(request)
        if prefill.begin % 64 == 0:  # behind a tail the rest is cut at other places
            assert differences(batch, alone) == []
        assert rounds(batch, depth) == rounds(alone, depth)
        after.close()


def test_a_turn_is_gone_on_from_with_the_text_a_fresh_reading_gives(
    model: LoadedModel, tmp_path: Path
) -> None:
    """Blocks and tail of the answer, states at true boundaries and the head's history: from disk and in memory."""
    depth, store = depth_of(model), Opened(tmp_path, block=16)
    request = ask(model, FIRST[:70], depth=depth)
    batch, sought = open_batch(request), store.prefixes.seek(request)
    finish(sought.begin(batch))
    rounds(batch, depth, 12)
    text = list(batch.rows[0].tokens)
    sought.keep_turn(batch, 0, quiet=True)
    store.settle()
    for forget in (True, False):
        follow_up = ask(model, [*text, *some(20, 9 + forget)], depth=depth)
        cold = rounds(read_alone(follow_up), depth)
        if forget:
            store.forget_memory()
        again, prefill = read(store.prefixes, follow_up)
        assert prefill.begin == len(text) - 1
        assert again.rows[0].dropped_pairs == 0
        assert [layer.lengths for layer in again.cache] == [[len(follow_up.prompt) - 1]] * len(again.cache)
        assert rounds(again, depth) == cold
    store.close()


def assert_reads(request: Request, batch: Batch, prefill: Prefill, expected: int) -> None:
    assert prefill.begin == expected
    assert read_slots(batch.cache[0]) == request.prompt[:-1]


def test_positions_got_back_and_positions_run_are_all_of_the_prompt(tmp_path: Path) -> None:
    model = table_model()
    target = model.target
    assert isinstance(target, Counting)
    for expected in (0, 299):
        store = Opened(tmp_path)
        target.counts.clear()
        _, prefill = read(store.prefixes, ask(model, SHARED))
        assert prefill.begin == expected
        assert prefill.begin + sum(target.counts) == len(SHARED) - 1
        assert store.tiers.counts.from_disk == expected
        store.close()


def test_what_memory_lacks_is_taken_from_the_disk_and_stays_there(tmp_path: Path) -> None:
    model, store = table_model(), Opened(tmp_path)
    read(store.prefixes, ask(model, SHARED))
    store.settle()
    size = store.index.nbytes
    store.index.shrink(size // 2)
    request = ask(model, SHARED)
    batch, prefill = read(store.prefixes, request)
    assert_reads(request, batch, prefill, 299)
    assert 0 < store.tiers.counts.from_disk < 299
    assert store.index.nbytes == size
    before = store.tiers.counts.from_disk
    read(store.prefixes, ask(model, SHARED))
    assert store.tiers.counts.from_disk == before
    store.close()


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_prompt_larger_than_memory_is_kept_on_disk_and_comes_back(tmp_path: Path, limit: int) -> None:
    model, store = table_model(), Opened(tmp_path, limit=limit)
    for expected in (0, 299, 299):
        request = ask(model, SHARED)
        batch, prefill = read(store.prefixes, request)
        assert_reads(request, batch, prefill, expected)
        store.settle()
    assert store.index.nbytes <= limit
    store.close()


def test_one_that_only_keeps_takes_nothing_and_one_that_is_off_leaves_nothing(tmp_path: Path) -> None:
    model = table_model()

    def asked(prompt: list[int], mode: str) -> int:
        store = Opened(tmp_path)
        request = ask(model, prompt)
        request.store = mode
        begin = read(store.prefixes, request)[1].begin
        store.close()
        return begin

    assert asked(SHARED, STORE_OFF) == 0
    assert asked(SHARED, STORE_ON) == 0
    assert asked(SHARED, STORE_WRITE_ONLY) == 0
    assert asked(SHARED, STORE_OFF) == 0
    assert asked(SHARED, STORE_ON) == 299
    other = tokens_of(200, seed=77)
    assert asked(other, STORE_WRITE_ONLY) == 0
    assert asked(other, STORE_ON) == 199


def test_what_only_memory_has_is_written_once_somebody_who_keeps_goes_on_from_it(tmp_path: Path) -> None:
    """Else nothing behind it could be kept, as long as memory has it."""
    model, store = table_model(), Opened(tmp_path)
    off = ask(model, SHARED)
    off.store = STORE_OFF
    read(store.prefixes, off)
    store.settle()
    assert store.disk.counts().blocks == 0
    longer = [*SHARED, *tokens_of(90, seed=5)]
    assert read(store.prefixes, ask(model, longer))[1].begin == 299
    store.close()
    store = Opened(tmp_path)
    assert read(store.prefixes, ask(model, longer))[1].begin == len(longer) - 1
    store.close()


def test_what_went_bad_on_disk_and_is_in_memory_is_written_anew(tmp_path: Path) -> None:
    model, store = table_model(), Opened(tmp_path)
    read(store.prefixes, ask(model, SHARED))
    store.settle()
    for file in (tmp_path / "blocks").rglob("*.blk"):
        file.write_bytes(file.read_bytes()[:-1])
    assert store.disk.verify().bad > 0
    assert read(store.prefixes, ask(model, SHARED))[1].begin == 299
    store.close()
    store = Opened(tmp_path)
    assert read(store.prefixes, ask(model, SHARED))[1].begin == 299
    store.close()


def test_a_queue_smaller_than_a_block_takes_one_after_the_other(tmp_path: Path) -> None:
    model, store = table_model(), Opened(tmp_path, limits=replace(LIMITS, queue=10))
    read(store.prefixes, ask(model, SHARED))
    store.settle()
    store.forget_memory()
    assert read(store.prefixes, ask(model, SHARED))[1].begin == 299
    store.close()


def test_another_head_keeps_the_bodys_part(tmp_path: Path) -> None:
    model = table_model()
    store = Opened(tmp_path)
    read(store.prefixes, ask(model, SHARED))
    store.close()
    assert model.content is not None
    other = table_model()
    other.content = (model.content[0], "another head")
    store = Opened(tmp_path)
    batch, prefill = read(store.prefixes, ask(other, SHARED))
    assert prefill.begin == (len(SHARED) - 1 - FRESH) // 64 * 64
    assert batch.rows[0].dropped_pairs == prefill.begin
    assert store.tiers.counts.miss_reasons == {"other_head": 1}
    assert read(store.prefixes, ask(model, SHARED))[1].begin == 299
    store.close()


def test_another_body_gets_nothing(tmp_path: Path) -> None:
    model, other = table_model(), table_model()
    store = Opened(tmp_path)
    read(store.prefixes, ask(model, SHARED))
    store.close()
    store = Opened(tmp_path)
    request = ask(other, SHARED)
    batch, prefill = read(store.prefixes, request)
    assert_reads(request, batch, prefill, 0)
    assert store.tiers.counts.miss_reasons == {"other_model": 1}
    store.close()


def test_a_block_that_went_bad_ends_what_comes_back_before_it(tmp_path: Path) -> None:
    model, store = table_model(), Opened(tmp_path)
    request = ask(model, SHARED)
    read(store.prefixes, request)
    store.close()
    store = Opened(tmp_path)
    chains = store.prefixes.seek(request)._chain
    name = chains.body.name(2)
    [file] = tmp_path.rglob(f"{name.hex()}*")
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(bytes(damaged))
    batch = open_batch(request)
    prefill = finish(store.prefixes.seek(request).begin(batch))
    assert_reads(request, batch, prefill, 128)
    assert differences(batch, read_alone(request)) == []
    store.settle()
    store.forget_memory()
    batch, prefill = read(store.prefixes, ask(model, SHARED))  # it was kept anew
    assert_reads(request, batch, prefill, 299)
    store.close()


def test_what_these_caches_cannot_hold_costs_nothing_but_itself(tmp_path: Path) -> None:
    """A block whose checksums are right but which another layout made: read as ever, and the next one as well."""
    model, store = table_model(), Opened(tmp_path)
    request = ask(model, SHARED)
    sought = store.prefixes.seek(request)
    read(store.prefixes, request)
    store.settle()
    store.forget_memory()
    chains = sought._chain
    found = store.disk.read(chains.body.name(1), chains.body.span(1))
    assert found is not None
    for place, meta in ((0, {**found.meta, "form": 0}), (1, {**found.meta, "pieces": []})):
        store.disk.discard([chains.body.name(place)])
        assert store.disk.flush(10.0)
        store.tiers.offer(chains, place, "body", meta, found.tensors, 2)
        assert store.disk.flush(10.0)
    for _ in range(2):
        store.forget_memory()
        batch = open_batch(request)
        prefill = finish(store.prefixes.seek(request).begin(batch))
        assert read_slots(batch.cache[0]) == request.prompt[:-1]
        assert batch.rows[0].absorbed == len(read_slots(batch.head_cache[0]))
        assert prefill.finished
    store.close()


def test_rows_that_wait_for_the_disk_let_others_go_on(tmp_path: Path) -> None:
    """A step of little time does little, and what has not arrived is nobody's wait."""
    model, store = table_model(), Opened(tmp_path)
    request = ask(model, SHARED)
    read(store.prefixes, request)
    store.close()
    store = Opened(tmp_path)
    batch = open_batch(request)
    going = store.prefixes.seek(request).start(batch)
    assert isinstance(going, Restoring)
    steps = 0
    while (prefill := going.step(0.0)) is None:
        steps += 1
        if not going.ready:
            going.wait(10.0)
    assert steps > 5
    assert_reads(request, batch, finish(prefill), 299)
    store.close()


def test_what_waits_for_the_disk_has_half_of_what_rows_leave_and_always_something(tmp_path: Path) -> None:
    store = Opened(tmp_path, limit=0)
    for spare, waiting in [(64 << 20, 32 << 20), (0, LEAST_WAITING), (-5, LEAST_WAITING)]:
        store.prefixes.bound(spare)
        assert (store.disk._waiting.limit, store.prefixes._backlog._bound) == (waiting, waiting)
    store.close()


def test_what_is_on_its_way_is_bounded_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the prompt, beside its row there is never more than what is read ahead and gathered."""
    model, store = table_model(), Opened(tmp_path, limit=0)
    request = ask(model, SHARED)
    read(store.prefixes, request)
    store.close()
    store = Opened(tmp_path, limit=0)
    chains = store.prefixes.seek(request)._chain
    body = store.disk.find(chains.body.name(1))
    head = store.disk.find(chains.whole.name(1))
    assert body is not None
    assert head is not None
    most = max(body.raw_bytes, head.raw_bytes)
    monkeypatch.setattr(restoring, "SEGMENT", body.raw_bytes + head.raw_bytes)
    store.prefixes.bound(most)
    batch = open_batch(request)
    going = store.prefixes.seek(request).start(batch)
    assert isinstance(going, Restoring)
    seen = []
    while (prefill := going.step(0.0)) is None:
        seen.append(store.prefixes.on_the_way)
        if not going.ready:
            going.wait(10.0)
    assert prefill.begin == 299
    assert 0 < max(seen) <= most + 2 * (body.raw_bytes + head.raw_bytes)
    assert store.prefixes.on_the_way == 0
    going = store.prefixes.seek(request).start(open_batch(request))
    assert isinstance(going, Restoring)
    while not store.prefixes.on_the_way:
        going.step(0.0)
        going.wait(10.0)
    going.close()
    assert store.disk.flush(10.0)
    assert store.tiers._reader is not None
    with store.tiers._reader.ahead.change:
        store.tiers._reader.ahead.change.wait_for(lambda: store.prefixes.on_the_way == 0, 10.0)
    assert store.prefixes.on_the_way == 0
    store.close()


def test_what_memory_drops_meanwhile_is_taken_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "SEGMENT", 1)
    model, store = table_model(), Opened(tmp_path)
    request = ask(model, SHARED)
    read(store.prefixes, request)
    store.settle()
    batch = open_batch(request)
    going = store.prefixes.seek(request).start(batch)
    assert isinstance(going, Restoring)
    assert going.step(0.0) is None
    store.forget_memory()
    prefill = going.finish()
    assert store.tiers.counts.from_disk == 299
    assert_reads(request, batch, prefill, 299)
    assert differences(batch, read_alone(request)) == []
    store.close()


def test_a_text_that_is_forgotten_is_in_no_memory_and_never_gets_to_the_disk(tmp_path: Path) -> None:
    """But what another one begins with as well stays, and so does that other one."""
    model, store = table_model(), Opened(tmp_path)
    other = [*SHARED[:130], *tokens_of(60, seed=5)]
    for prompt in (SHARED, other):
        read(store.prefixes, ask(model, prompt))
    assert store.prefixes.forget_texts([(SHARED, 130)]) > 0
    store.settle()
    assert store.prefixes.seek(ask(model, SHARED)).known == 128
    assert store.prefixes.seek(ask(model, other)).known == len(other) - 1
    store.forget_memory()
    assert store.prefixes.seek(ask(model, SHARED)).known == 128
    assert store.prefixes.seek(ask(model, other)).known == len(other) - 1
    read(store.prefixes, ask(model, SHARED))
    assert store.prefixes.clear() > 0
    store.settle()
    assert (store.index.nbytes, store.prefixes.seek(ask(model, SHARED)).known) == (0, 128)
    store.close()


@pytest.mark.parametrize("length", [50, 200])
def test_a_row_that_was_there_when_all_was_wiped_keeps_nothing(tmp_path: Path, length: int) -> None:
    """Neither the rest of its prompt nor its answer; those that come later do."""
    model, store = table_model(), Opened(tmp_path)
    request = ask(model, SHARED[:length])
    batch, sought = open_batch(request), store.prefixes.seek(request)
    prefill = sought.begin(batch)
    prefill.step(40)
    store.prefixes.clear()
    store.disk.clear()
    finish(prefill)
    rounds(batch, 2, 80)
    sought.keep_turn(batch, 0, quiet=True)
    store.settle()
    assert (store.index.nbytes, store.disk.counts().blocks) == (0, 0)
    read(store.prefixes, ask(model, SHARED[:length]))
    store.settle()
    assert store.disk.counts().blocks > 0
    store.close()


def test_one_that_gives_up_half_way_leaves_all_as_it_was(tmp_path: Path) -> None:
    model, store = table_model(), Opened(tmp_path)
    request = ask(model, SHARED)
    read(store.prefixes, request)
    store.close()
    store = Opened(tmp_path)
    going = store.prefixes.seek(request).start(open_batch(request))
    assert isinstance(going, Restoring)
    going.step(0.0)
    going.close()
    batch, prefill = read(store.prefixes, request)
    assert_reads(request, batch, prefill, 299)
    store.close()
