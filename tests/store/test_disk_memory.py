"""What the store knows in memory: what is kept, what waits, whether it can write, how it rests."""

from __future__ import annotations

import errno
import random
import sqlite3
from pathlib import Path

import pytest
from mtplxd.store import health, waiting
from mtplxd.store.health import LAST_RETRY_S, Health, describe
from mtplxd.store.pacing import DUTY, LONGEST_S, Pace, pause_after
from mtplxd.store.places import Places, name_of
from mtplxd.store.shelf import Entry, Shelf, root_of
from mtplxd.store.waiting import Waiting, supersedes
from support.block_store import Clock, chain_of, offered_of

CHAIN = chain_of(range(60))


def entry(place: int, length: int | None = None, used: int = 0, **extra: int) -> Entry:
    offered = offered_of(CHAIN, place, length, **extra)
    return Entry(offered.kept(100), used, 0, root_of(offered.parent, offered.identity, offered.tokens))


def shelf_of(*entries: Entry) -> Shelf:
    shelf = Shelf()
    for each in entries:
        shelf.add(each)
    return shelf


def test_bytes_are_those_of_what_is_there() -> None:
    shelf = shelf_of(entry(0), entry(1), entry(1))
    assert (len(shelf), shelf.nbytes, shelf.raw_bytes) == (2, 200, 2 * 520)
    shelf.remove(CHAIN.name(1), "evicted")
    shelf.remove(CHAIN.name(1), "evicted")
    assert (len(shelf), shelf.nbytes, shelf.raw_bytes) == (1, 100, 520)


def test_tails_are_found_behind_their_block_the_longest_first() -> None:
    shelf = shelf_of(entry(0), entry(1, 3), entry(1, 5), entry(1, 4), entry(2, 2))
    assert [tail.length for tail in shelf.tails(CHAIN.name(0))] == [5, 4, 3]
    shelf.remove(CHAIN.name(1, 4), "superseded")
    assert [tail.length for tail in shelf.tails(CHAIN.name(0))] == [5, 3]
    assert shelf.tails(CHAIN.name(4)) == []


def test_the_first_blocks_of_the_same_tokens_are_found_of_any_identity() -> None:
    other = chain_of(range(60), body="another")
    first = offered_of(other, 0)
    shelf = shelf_of(
        entry(0), entry(1), Entry(first.kept(1), 0, 0, root_of(first.parent, first.identity, first.tokens))
    )
    assert {kept.identity for kept in shelf.roots(range(8))} == {CHAIN.identity, other.identity}
    assert shelf.roots(range(8, 16)) == []
    shelf.remove(CHAIN.name(0), "evicted")
    assert [kept.identity for kept in shelf.roots(range(8))] == [other.identity]


def test_why_a_block_is_gone_is_remembered_until_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = shelf_of(entry(0))
    assert shelf.why(CHAIN.name(0)) is None
    shelf.remove(CHAIN.name(0), "evicted")
    assert shelf.why(CHAIN.name(0)) == "evicted"
    shelf.add(entry(0))
    assert shelf.why(CHAIN.name(0)) is None
    monkeypatch.setattr("mtplxd.store.shelf.REMEMBERED", 3)
    for place in range(5):
        shelf.note_gone(bytes([place]), "dropped")
    assert [shelf.why(bytes([place])) for place in range(5)] == [None, None, "dropped", "dropped", "dropped"]


def test_a_use_is_later_than_all_before() -> None:
    shelf = shelf_of(entry(0, used=7), entry(1, used=9))
    shelf.touch([CHAIN.name(0), b"unknown"])
    assert [each.used for each in shelf] == [10, 9]
    assert shelf.touched == {CHAIN.name(0)}


def test_holders_are_counted_and_survive_a_replacement() -> None:
    shelf = shelf_of(entry(0))
    held = shelf.hold([CHAIN.name(0), CHAIN.name(1)])
    assert held == [CHAIN.name(0)]
    shelf.hold(held)
    shelf.add(entry(0, grade=1))
    assert [each.holds for each in shelf] == [2]
    shelf.release(held)
    shelf.release(held)
    shelf.release(held)
    assert [each.holds for each in shelf] == [0]


def test_followers_are_known_as_long_as_there_are_any() -> None:
    shelf = shelf_of(entry(0), entry(1), entry(1, 3))
    assert shelf.has_followers(CHAIN.name(0))
    assert not shelf.has_followers(CHAIN.name(1))
    shelf.add(entry(1, grade=1))
    shelf.remove(CHAIN.name(1), "evicted")
    assert shelf.has_followers(CHAIN.name(0))
    shelf.remove(CHAIN.name(1, 3), "evicted")
    assert not shelf.has_followers(CHAIN.name(0))


def test_unreachable_is_what_has_a_gap_before_it() -> None:
    shelf = shelf_of(*(entry(place) for place in (0, 1, 3, 4)), entry(2, 5), entry(6, 2))
    assert {*shelf.unreachable()} == {CHAIN.name(3), CHAIN.name(4), CHAIN.name(6, 2)}
    assert shelf_of(entry(0), entry(1)).unreachable() == []
    draw = random.Random(5)
    for _ in range(50):
        places = draw.sample(range(7), draw.randrange(8))
        reached = next(place for place in range(8) if place not in places)
        expected = {CHAIN.name(place) for place in places if place > reached}
        assert {*shelf_of(*(entry(place) for place in places)).unreachable()} == expected


def test_blocks_that_follow_each_other_in_a_ring_are_unreachable() -> None:
    one, other = entry(1), entry(2)
    object.__setattr__(one.kept, "parent", other.name)
    assert {*shelf_of(one, other).unreachable()} == {one.name, other.name}


def test_what_waits_comes_in_its_order_and_counts_until_it_is_done() -> None:
    queue = Waiting(5000)
    for place in range(4):
        queue.put(offered_of(CHAIN, place))
    assert (len(queue), queue.nbytes) == (4, 4 * 520)
    assert [each.name for each in queue.take(1000, 64)] == [CHAIN.name(0), CHAIN.name(1)]
    assert (len(queue), queue.nbytes) == (4, 4 * 520)
    assert queue.names() == [CHAIN.name(place) for place in range(4)]
    queue.finish()
    assert (len(queue), queue.nbytes) == (2, 2 * 520)
    assert [each.name for each in queue.take(10**9, 1)] == [CHAIN.name(2)]


def test_at_least_one_block_is_taken_however_large() -> None:
    queue = Waiting(100)
    queue.put(offered_of(CHAIN, 0))
    assert len(queue.take(1, 64)) == 1


def test_the_queue_is_bounded_but_never_too_small_for_a_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Waiting(1000)
    assert queue.has_room(10**9)
    queue.put(offered_of(CHAIN, 0))
    assert queue.room() == 480
    assert queue.has_room(480)
    assert not queue.has_room(481)
    queue.take(1, 1)
    assert not queue.has_room(481)
    queue.finish()
    assert queue.has_room(10**9)
    monkeypatch.setattr(waiting, "MOST", 2)
    queue.put(offered_of(CHAIN, 0))
    assert queue.has_room(1)
    queue.put(offered_of(CHAIN, 1))
    assert not queue.has_room(1)
    assert queue.room() == 0


def test_a_block_of_the_same_name_waits_once() -> None:
    queue = Waiting(10**6)
    queue.put(offered_of(CHAIN, 0))
    queue.put(offered_of(CHAIN, 0, grade=2))
    assert [each.grade for each in queue.take(10**6, 9)] == [2]
    assert queue.nbytes == 520


@pytest.mark.parametrize(
    ("place", "length", "gone"),
    [(1, None, {3, 5}), (1, 6, {3, 5}), (1, 4, {3}), (1, 2, set()), (2, None, set())],
)
def test_a_tail_that_a_longer_block_holds_need_not_be_written(
    place: int, length: int | None, gone: set[int]
) -> None:
    queue = Waiting(10**6)
    queue.put(offered_of(CHAIN, 1, 5))
    queue.put(offered_of(CHAIN, 1, 3))
    assert {len(each.tokens) for each in queue.put(offered_of(CHAIN, place, length))} == gone


def test_a_tail_of_other_tokens_or_of_more_worth_is_written_all_the_same() -> None:
    other = chain_of([*range(8), 99, 98, 97])
    assert other.nodes[1] == CHAIN.nodes[1]
    queue = Waiting(10**6)
    queue.put(offered_of(other, 1, 3))
    queue.put(offered_of(CHAIN, 1, 4, grade=1))
    assert queue.put(offered_of(CHAIN, 1)) == []
    assert [each.name for each in queue.put(offered_of(CHAIN, 1, grade=1))] == [CHAIN.name(1, 4)]


def test_one_supersedes_only_what_is_shorter() -> None:
    assert not supersedes(offered_of(CHAIN, 1, 4), CHAIN.name(1, 4), 4, 0)
    assert supersedes(offered_of(CHAIN, 1, 4), CHAIN.name(1, 3), 3, 0)
    assert not supersedes(offered_of(CHAIN, 1, 4), CHAIN.name(2, 3), 3, 0)


def test_what_is_being_written_cannot_be_dropped() -> None:
    queue = Waiting(10**6)
    for place in range(3):
        queue.put(offered_of(CHAIN, place))
    queue.take(1, 1)
    assert [each.name for each in queue.drop([CHAIN.name(0), CHAIN.name(2)])] == [CHAIN.name(2)]
    assert [each.name for each in queue.drop()] == [CHAIN.name(1)]
    assert queue.nbytes == 520
    queue.finish()
    assert queue.nbytes == 0


def test_a_fault_is_tried_again_ever_later_until_it_is_gone() -> None:
    state = Health()
    assert (state.state, state.may_try(0.0)) == (health.OPENING, True)
    waits = []
    for _ in range(9):
        state.note_fault("broken", 100.0)
        waits.append(next(wait for wait in range(1, 200) if state.may_try(100.0 + wait)))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert (state.state, state.reason, state.faults, state.faulty) == (health.DEGRADED, "broken", 9, True)
    state.note_written()
    assert (state.state, state.reason, state.last_fault) == (health.READY, "", "broken")
    state.note_fault("again", 100.0)
    assert state.may_try(101.0)


def test_a_limit_is_named_but_never_covers_a_fault() -> None:
    state = Health()
    state.note_written()
    state.note_pause("full")
    assert (state.state, state.reason, state.may_try(0.0)) == (health.PAUSED, "full", True)
    state.note_fault("broken", 0.0)
    state.note_pause("full")
    assert state.reason == "broken"


def test_what_is_closed_stays_closed() -> None:
    state = Health()
    state.close()
    state.note_written()
    assert (state.state, state.may_try(0.0)) == (health.CLOSED, False)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "free space on its volume"), (errno.EROFS, "read-only"), (errno.EIO, "check the disk"),
        (errno.ENOENT, "made again"), (errno.EAGAIN, "another process"), (errno.EACCES, "access"),
        (errno.EMFILE, "look at its folder"),
    ],
)  # fmt: skip
def test_a_fault_reads_as_what_and_what_to_do(number: int, says: str) -> None:
    text = describe(OSError(number, "The reason"))
    assert text.startswith("the prompt store cannot be written (The reason): ")
    assert says in text
    assert "\n" not in text
    assert "answers are right" in describe(sqlite3.OperationalError("disk I/O error"))


def test_rest_follows_work_in_proportion_and_has_a_bound() -> None:
    assert pause_after(0.01) == pytest.approx(0.01 * (1 - DUTY) / DUTY)
    assert pause_after(10.0) == LONGEST_S
    assert pause_after(0.0) == 0.0


@pytest.mark.parametrize("busy", [True, False])
def test_it_rests_only_while_somebody_decodes(busy: bool) -> None:
    clock, rests = Clock(), []
    pace = Pace(lambda: busy, rests.append, clock)
    clock.now += 100.0
    pace.begin()
    for _ in range(3):
        clock.now += 0.003
        pace.breathe()
    assert rests == (pytest.approx([pause_after(0.003)] * 3) if busy else [])


def test_a_file_has_the_name_of_its_block_and_no_other_has_one() -> None:
    name = CHAIN.name(0)
    places = Places(Path("/x"))
    assert name_of(places.block(name).name) == name
    assert places.block(name).parent.name == name[:1].hex()
    for other in (
        "",
        "a.blk",
        f"{name.hex()}.tmp",
        f"{name.hex()[:-1]}g.blk",
        f"{name.hex()}",
        f".{name.hex()}.tmp",
    ):
        assert name_of(other) is None
    assert name_of(f"{name.hex().upper()}.blk") is None


def test_a_clock_that_went_back_does_not_put_off_the_next_try() -> None:
    state = Health()
    for _ in range(9):
        state.note_fault("broken", 1e9)
    assert not state.may_try(1e9)
    assert not state.may_try(1e9 + LAST_RETRY_S - 1)
    assert state.may_try(1e9 + LAST_RETRY_S)
    assert state.may_try(5.0)
