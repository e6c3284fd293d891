"""What must go when the store is full, what may be written within an hour, and when disk and budget say no."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from mtplxd.store.limits import GIB, HOUR_S, Limits, WriteBudget, choose_evicted, to_free


@dataclass
class Block:
    name: bytes
    parent: bytes = b"root"
    nbytes: int = 10
    used: int = 0
    holds: int = 0


def chain(*uses: int, of: str = "c", holds: dict[int, int] | None = None) -> list[Block]:
    """Blocks that follow each other."""
    names = [f"{of}{place}".encode() for place in range(len(uses))]
    return [
        Block(name, names[place - 1] if place else b"root", used=used, holds=(holds or {}).get(place, 0))
        for place, (name, used) in enumerate(zip(names, uses, strict=True))
    ]


def test_nothing_goes_where_nothing_must() -> None:
    assert choose_evicted(chain(1, 2, 3), 0) == []
    assert choose_evicted(chain(1, 2, 3), -5) == []
    assert choose_evicted([], 100) == []


def test_the_least_recently_used_goes_first() -> None:
    blocks = [Block(b"a", used=3), Block(b"b", used=1), Block(b"c", used=2)]
    assert choose_evicted(blocks, 1) == [b"b"]
    assert choose_evicted(blocks, 11) == [b"b", b"c"]
    assert choose_evicted(blocks, 1000) == [b"b", b"c", b"a"]


def test_a_block_goes_only_after_all_that_follow_it() -> None:
    assert choose_evicted(chain(1, 2, 3), 25) == [b"c2", b"c1", b"c0"]
    forked = [*chain(1, 5), Block(b"x", b"c0", used=9), Block(b"y", b"x", used=2)]
    assert choose_evicted(forked, 1000) == [b"y", b"c1", b"x", b"c0"]


def test_a_held_block_and_all_before_it_stay() -> None:
    blocks = [*chain(1, 2, 3, 4, holds={2: 1}), *chain(9, 9, of="d")]
    assert choose_evicted(blocks, 1000) == [b"c3", b"d1", b"d0"]


def test_a_block_whose_beginning_is_not_there_goes_like_any_other() -> None:
    assert choose_evicted([Block(b"x", b"gone", used=1), Block(b"y", used=2)], 5) == [b"x"]


def test_any_forest_loses_ends_only_and_just_as_much_as_it_must() -> None:
    draw = random.Random(3)
    for _ in range(300):
        blocks: list[Block] = []
        for place in range(draw.randrange(1, 25)):
            parent = draw.choice([b"root", *(block.name for block in blocks)])
            holds = int(draw.random() < 0.1)
            blocks.append(
                Block(f"b{place}".encode(), parent, draw.randrange(1, 20), draw.randrange(30), holds)
            )
        need = draw.randrange(1, 200)
        gone = choose_evicted(blocks, need)
        by_name = {block.name: block for block in blocks}
        left = dict(by_name)
        for name in gone:
            del left[name]
            assert all(block.parent != name for block in left.values())
            assert not by_name[name].holds
        freed = sum(by_name[name].nbytes for name in gone)
        assert freed - (by_name[gone[-1]].nbytes if gone else 0) < need
        if freed < need:
            ends = {block.name for block in left.values()} - {block.parent for block in left.values()}
            assert all(left[name].holds for name in ends)


def test_a_larger_need_takes_the_same_ones_first() -> None:
    draw = random.Random(4)
    blocks = [block for of in "abc" for block in chain(*(draw.randrange(99) for _ in range(6)), of=of)]
    most = choose_evicted(blocks, 1000)
    for need in range(1, 180, 7):
        few = choose_evicted(blocks, need)
        assert few == most[: len(few)]


def test_room_is_made_with_some_to_spare_and_only_when_there_is_too_little() -> None:
    limits = Limits(size=6400)
    assert to_free(limits, 6000, 400) == 0
    assert to_free(limits, 6000, 401) == 101
    assert to_free(limits, 7000, 0) == 700


def test_the_budget_is_what_was_not_written_within_an_hour() -> None:
    budget = WriteBudget(100, 0.0)
    budget.spend(30, 0.0)
    budget.spend(50, 1800.0)
    assert budget.left(1800.0) == 20
    assert budget.left(HOUR_S - 1) == 20
    assert budget.left(HOUR_S) == 50
    assert budget.left(1800.0 + HOUR_S) == 100


def test_the_budget_never_goes_below_nothing() -> None:
    budget = WriteBudget(100, 0.0)
    budget.spend(500, 0.0)
    assert budget.left(1.0) == 0


def test_many_small_writes_are_few_numbers() -> None:
    budget = WriteBudget(10**9, 0.0)
    for second in range(3600):
        budget.spend(10, float(second))
    assert budget.left(3599.0) == 10**9 - 36000
    assert len(budget.ages(3599.0)) == 60


def test_the_budget_outlives_a_restart_and_time_not_watched_does_not_count() -> None:
    budget = WriteBudget(100, 5000.0)
    budget.spend(60, 5000.0)
    again = WriteBudget(100, 17.0, budget.ages(6000.0))
    assert again.left(17.0) == 40
    assert again.left(17.0 + HOUR_S - 1001) == 40
    assert again.left(17.0 + HOUR_S - 1000) == 100


@pytest.mark.parametrize(
    "spent", [[(-5.0, 50)], [(HOUR_S, 50)], [(1.0, -50)], [(1e12, 5), (float("nan"), 5)]]
)
def test_what_cannot_have_been_spent_is_passed_over(spent: list[tuple[float, int]]) -> None:
    assert WriteBudget(100, 10.0, spent).left(10.0) == 100


def test_spending_comes_back_in_the_order_of_time() -> None:
    budget = WriteBudget(100, 0.0, [(100.0, 1), (3000.0, 2), (500.0, 4)])
    assert [nbytes for _, nbytes in budget.ages(0.0)] == [2, 4, 1]
    assert budget.left(700.0) == 95


def test_the_limits_one_gets_without_asking() -> None:
    assert Limits() == Limits(16 * GIB, 10 * GIB, 128 * GIB, 512 << 20)


def test_a_clock_that_went_back_neither_uses_the_budget_up_nor_renews_it() -> None:
    budget = WriteBudget(100, 10_000.0)
    budget.spend(30, 9_000.0)
    budget.spend(50, 10_000.0)
    assert budget.left(10.0) == 20
    assert budget.ages(10.0) == [(1000.0, 30), (0.0, 50)]
    budget.spend(20, 10.0)
    assert budget.left(10.0 + HOUR_S - 1001) == 0
    assert budget.left(10.0 + HOUR_S - 1000) == 30
    assert budget.left(10.0 + HOUR_S) == 100
