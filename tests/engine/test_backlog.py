"""Blocks wait for the disk in their order, within bounds, and tails only as long as they may be of use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mtplxd.engine import backlog as room
from mtplxd.engine.backlog import QUIET_S, Backlog
from mtplxd.engine.blocks import BODY, HEAD, Block
from mtplxd.families.pieces import Piece
from mtplxd.platform.mlx import mx
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.tiers import Chains, Tiers

BLOCK = 4
FACTS = {"body": "b", "head": "h", "dtype": "d", "backend": "k", "partition": "free"}
TEXT = [*range(40)]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Disk:
    """Takes blocks as long as there is room."""

    def __init__(self) -> None:
        self.room = 1 << 30
        self.taken: list[tuple[int, str, int | None, int]] = []
        self.there: set[tuple[int, str, int | None]] = set()
        self.dropped: list[str] = []

    def takes(self, nbytes: int) -> bool:
        return nbytes <= self.room

    def note_dropped(self, reason: str) -> None:
        self.dropped.append(reason)

    def lacks(self, _chains: Any, place: int, part: str, _grade: int, length: int | None = None) -> bool:
        return (place, part, length) not in self.there

    def offer(
        self,
        _chains: Any,
        place: int,
        part: str,
        _meta: Any,
        tensors: Any,
        grade: int,
        length: int | None = None,
    ) -> bool:
        self.room -= sum(len(tensor.data) for tensor in tensors)
        self.taken.append((place, part, length, grade))
        return True


@pytest.fixture(autouse=True)
def _await_device() -> Iterator[None]:
    yield
    mx.synchronize()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def backlog(disk: Disk, clock: Clock) -> Backlog:
    return Backlog(disk, clock)


def chains_of(text: list[int]) -> Chains:
    tiers: Tiers[Block] = Tiers(PrefixIndex(0, BLOCK))
    return tiers.chain(FACTS, text)


def block(*, headed: bool = True, lasting: int = 0) -> Block:
    slots = (mx.ones((1, 1, 4, 2)), mx.ones((1, 1, 4, 2)))
    taps = (mx.ones((1, 1, 3)),) if headed else ()
    mx.eval(slots, taps)
    return Block((Piece(0, 4, slots=slots),), (Piece(0, 3, slots=slots),) if headed else (), taps, lasting)


def test_blocks_go_one_after_the_other_in_both_parts(backlog: Backlog, disk: Disk) -> None:
    for place in range(3):
        backlog.add("m", chains_of(TEXT), place, None, block(headed=place < 2))
    while backlog.work(0.0):
        pass
    assert disk.taken == [
        (0, BODY, None, 2), (0, HEAD, None, 2), (1, BODY, None, 2), (1, HEAD, None, 2), (2, BODY, None, 2),
    ]  # fmt: skip
    assert backlog.nbytes == 0
    assert backlog.wait_s() is None


def test_a_little_time_is_for_one_block_at_least(backlog: Backlog, disk: Disk) -> None:
    for place in range(3):
        backlog.add("m", chains_of(TEXT), place, None, block(headed=False))
    assert backlog.work(0.0)
    assert len(disk.taken) == 1


def test_what_is_there_already_is_not_copied_again(backlog: Backlog, disk: Disk) -> None:
    disk.there = {(0, BODY, None), (1, BODY, None), (1, HEAD, None)}
    for place in range(2):
        backlog.add("m", chains_of(TEXT), place, None, block())
    while backlog.work(0.0):
        pass
    assert disk.taken == [(0, HEAD, None, 2)]


def test_where_the_disk_is_full_for_now_it_waits_and_loses_nothing(
    backlog: Backlog, disk: Disk, clock: Clock
) -> None:
    disk.room = 0
    backlog.add("m", chains_of(TEXT), 0, None, block())
    assert not backlog.work(1.0)
    assert 0 < (backlog.wait_s() or 0) <= room.RETRY_S
    disk.room = 1 << 20
    assert not backlog.work(1.0)  # not at once again
    clock.now += 1.0
    assert backlog.wait_s() == 0.0
    assert backlog.work(1.0)
    assert [part for _, part, _, _ in disk.taken] == [BODY, HEAD]


def test_a_tail_waits_until_it_is_quiet(backlog: Backlog, disk: Disk, clock: Clock) -> None:
    backlog.add("m", chains_of(TEXT[:6]), 1, 2, block(lasting=1))
    assert not backlog.work(1.0)
    assert backlog.wait_s() == pytest.approx(QUIET_S)
    clock.now += QUIET_S
    assert backlog.work(1.0)
    assert disk.taken == [(1, BODY, 2, 3), (1, HEAD, 2, 3)]
    assert backlog.nbytes == 0


def test_a_tail_that_a_longer_text_goes_on_behind_is_not_written(
    backlog: Backlog, disk: Disk, clock: Clock
) -> None:
    backlog.add("m", chains_of(TEXT[:6]), 1, 2, block())
    backlog.add("m", chains_of([*TEXT[:5], 99]), 1, 2, block())
    backlog.outgrow(chains_of(TEXT[:6]), 6)  # the same text again: it ends there as well
    assert backlog.nbytes == 2 * block().nbytes
    backlog.outgrow(chains_of(TEXT), len(TEXT))
    clock.now += QUIET_S
    while backlog.work(1.0):
        pass
    assert [length for _, _, length, _ in disk.taken] == [2, 2]
    assert backlog.nbytes == 0


def test_at_the_end_tails_wait_no_longer(backlog: Backlog, disk: Disk) -> None:
    backlog.add("m", chains_of(TEXT[:6]), 1, 2, block())
    backlog.add("m", chains_of(TEXT), 0, None, block())
    assert backlog.flush(1.0)
    assert [place for place, _, _, _ in disk.taken] == [0, 0, 1, 1]


def test_only_those_of_a_model_that_leaves_are_waited_for(backlog: Backlog, disk: Disk) -> None:
    backlog.add("one", chains_of(TEXT[:6]), 1, 2, block())
    assert backlog.flush(0.0, "another")
    assert disk.taken == []
    assert backlog.flush(1.0, "one")
    assert len(disk.taken) == 2


def test_a_disk_that_takes_nothing_does_not_hold_the_end_up(disk: Disk) -> None:
    disk.room = 0
    backlog = Backlog(disk)
    backlog.add("m", chains_of(TEXT), 0, None, block())
    assert not backlog.flush(0.0)


def test_what_waits_is_bounded_and_the_first_go_before_it_is_more(
    backlog: Backlog, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST", 2 * block().nbytes)
    backlog.bound(1 << 50)  # there is never more than ever
    for place in range(5):
        backlog.add("m", chains_of(TEXT), place, None, block())
        assert backlog.nbytes <= 2 * block().nbytes
    assert sorted({place for place, _, _, _ in disk.taken}) == [0, 1, 2]
    assert disk.dropped == []


def test_where_memory_is_short_less_waits(backlog: Backlog, disk: Disk) -> None:
    backlog.bound(3 * block().nbytes)
    for place in range(3):
        backlog.add("m", chains_of(TEXT), place, None, block())
    assert disk.taken == []
    backlog.bound(block().nbytes)
    assert backlog.nbytes == 3 * block().nbytes  # what waits already stays
    backlog.add("m", chains_of(TEXT), 3, None, block())
    assert (backlog.nbytes, sorted({place for place, _, _, _ in disk.taken})) == (block().nbytes, [0, 1, 2])


def test_what_the_disk_has_no_room_for_then_is_dropped_and_counted(
    backlog: Backlog, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST", 2 * block().nbytes)
    disk.room = 0
    for place in range(5):
        backlog.add("m", chains_of(TEXT), place, None, block())
    assert backlog.nbytes == 2 * block().nbytes
    assert disk.dropped == ["backlog_full"] * 3


def test_a_tail_that_is_kept_better_takes_the_place_of_the_one_that_waits(
    backlog: Backlog, disk: Disk
) -> None:
    backlog.add("m", chains_of(TEXT[:6]), 1, 2, block(headed=False))
    backlog.add("m", chains_of(TEXT[:6]), 1, 2, block())
    assert backlog.flush(1.0)
    assert [part for _, part, _, _ in disk.taken] == [BODY, HEAD]
    assert backlog.nbytes == 0


def test_what_waits_is_not_taken_twice_and_keeps_its_place(backlog: Backlog, disk: Disk) -> None:
    for headed in (False, True):
        for place in (0, 1):
            backlog.add("m", chains_of(TEXT), place, None, block(headed=headed))
    assert backlog.nbytes == 2 * block().nbytes
    assert backlog.flush(1.0)
    assert [(place, part) for place, part, _, _ in disk.taken] == [(0, BODY), (0, HEAD), (1, BODY), (1, HEAD)]
    assert backlog.nbytes == 0


def test_what_memory_has_is_taken_where_the_disk_lacks_it_as_far_as_there_is_room(
    backlog: Backlog, disk: Disk
) -> None:
    disk.there = {(0, BODY, None), (0, HEAD, None), (1, BODY, None)}
    backlog.bound(2 * block().nbytes)
    found = [backlog.mend("m", chains_of(TEXT), place, None, block()) for place in (0, 1, 1, 2, 3)]
    assert found == [True, True, True, True, False]
    assert waits(backlog) == {(1, None), (2, None)}
    assert backlog.flush(1.0)
    assert [(place, part) for place, part, _, _ in disk.taken] == [(1, HEAD), (2, BODY), (2, HEAD)]


def waits(backlog: Backlog) -> set[tuple[int, int | None]]:
    return {(one.place, one.length) for one in (*backlog._blocks.values(), *backlog._tails.values())}


def test_what_is_a_texts_alone_is_not_written_once_it_is_forgotten(backlog: Backlog, disk: Disk) -> None:
    """Nor is what goes on from there; what another text begins with is, and so is that text."""
    mine, other = chains_of(TEXT[:14]), chains_of([*TEXT[:8], 99, 98, 97, 96])
    for place in range(3):
        backlog.add("m", mine, place, None, block())
    backlog.add("m", mine, 3, 1, block())
    backlog.add("m", other, 2, None, block())
    backlog.forget(tuple(TEXT[:14]), 8)
    assert waits(backlog) == {(0, None), (1, None), (2, None)}
    assert backlog.flush(10.0)
    assert backlog.nbytes == 0
    assert [place for place, part, *_ in disk.taken if part == BODY] == [0, 1, 2]
    backlog.add("m", mine, 1, None, block())
    backlog.add("m", mine, 3, 1, block())
    backlog.forget(TEXT[:6], 0)
    assert waits(backlog) == set()
    assert backlog.nbytes == 0


def test_nothing_is_written_once_all_is_wiped(backlog: Backlog, disk: Disk) -> None:
    chains = chains_of(TEXT)
    backlog.add("m", chains, 0, None, block())
    backlog.add("m", chains, 1, 2, block())
    backlog.clear()
    assert (backlog.nbytes, backlog.wait_s(), backlog.flush(1.0)) == (0, None, True)
    assert disk.taken == []
