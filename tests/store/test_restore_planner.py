"""The longest beginning that a row can go on behind is found, never one that it cannot: compared with trying all."""

from __future__ import annotations

import random

import pytest
from mtplxd.store.planner import FRESH, GAPPED, PASSES, RESTORES, Need, Plan, There, plan

WHOLE, BARE = There(RESTORES, RESTORES), There(RESTORES)


def found(there: list[There], tails: dict[int, list[tuple[int, There]]], need: Need) -> Plan:
    return plan(there, [tails.get(place, []) for place in range(len(there) + 1)], need)


def can(
    count: int, tail: int | None, there: list[There], end: There | None, need: Need, headed: bool
) -> bool:
    """Whether a row may go on there, said the long way round."""
    parts = [*there[:count], *([end] if end else [])]
    if any(part.body is None or (headed and part.head is None) for part in parts):
        return False
    grades = [min(part.body, part.head) if headed else part.body for part in parts]  # type: ignore[type-var]
    length = count * need.block + (tail or 0)
    if length > need.total or (tail and not need.tails) or (not tail and length % need.align):
        return False
    if not parts:
        return True
    ends = [min((place + 1) * need.block, length) for place in range(len(parts))]
    reached = [
        grade for grade, end_at in zip(grades, ends, strict=True) if end_at > max(0, length - need.reach)
    ]
    return grades[-1] >= RESTORES and GAPPED not in reached  # type: ignore[operator]


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_longest_of_all_that_can_be(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        need = Need(
            total=draw.randrange(0, 90),
            block=draw.choice([4, 8]),
            drafts=draw.random() < 0.5,
            anew=False,
            tails=draw.random() < 0.7,
            align=draw.choice([1, 1, 16]),
            reach=draw.choice([0, 0, 9, 30]),
        )
        grades = [GAPPED, PASSES, RESTORES, RESTORES, RESTORES + 1, None]
        there = [There(draw.choice(grades[:5]), draw.choice(grades)) for _ in range(draw.randrange(12))]
        tails = {
            place: [
                (length, There(draw.choice(grades[:5]), draw.choice(grades)))
                for length in range(1, need.block)
                if draw.random() < 0.3
            ]
            for place in range(len(there) + 1)
        }
        headed = need.drafts
        lengths = [0]
        for count in range(len(there) + 1):
            ends: list[tuple[int | None, There | None]] = [(None, None), *tails[count]]
            lengths += [
                count * need.block + (tail or 0)
                for tail, end in ends
                if can(count, tail, there, end, need, headed) and (count or tail)
            ]
        best = found(there, tails, need)
        assert best.length(need.block) == max(lengths)


def test_nothing_there_is_nothing_found() -> None:
    assert found([], {}, Need(total=100, block=16)) == Plan()
    assert found([WHOLE], {}, Need(total=15, block=16, drafts=True)).length(16) == 0


def test_the_last_token_is_never_among_it() -> None:
    """`total` leaves it out: a prompt of 64 tokens has 63 positions to get back at most."""
    there = [WHOLE] * 4
    assert found(there, {}, Need(total=63, block=16, drafts=True)) == Plan(3, None, headed=True)
    assert found(there, {3: [(15, WHOLE)]}, Need(total=63, block=16, drafts=True)).length(16) == 63
    assert found(there, {3: [(16, WHOLE)]}, Need(total=63, block=16, drafts=True)).length(16) == 48


def test_a_state_is_needed_at_the_end_alone() -> None:
    there = [There(PASSES, PASSES), There(RESTORES, RESTORES), There(PASSES, PASSES)]
    assert found(there, {}, Need(total=100, block=16, drafts=True)).count == 1 + 1
    assert found(there, {3: [(5, WHOLE)]}, Need(total=100, block=16)).length(16) == 53


def test_slots_that_a_window_dropped_are_passed_where_nobody_looks_back_so_far() -> None:
    there = [There(RESTORES), There(GAPPED), There(RESTORES), There(RESTORES)]
    assert found(there, {}, Need(total=100, block=16, reach=16)).count == 4
    assert found(there, {}, Need(total=100, block=16, reach=32)).count == 4
    assert found(there, {}, Need(total=100, block=16, reach=33)).count == 1


def test_fixed_places_are_the_only_ones_where_they_are_asked_for() -> None:
    there = [WHOLE] * 7
    need = Need(total=112, block=16, drafts=True, anew=False, tails=False, align=64)
    assert found(there, {7: [(3, WHOLE)]}, need) == Plan(4, None, headed=True)


@pytest.mark.parametrize("blocks", [0, 1, 4, 8])
def test_a_head_begins_anew_where_that_saves_enough(blocks: int) -> None:
    there = [WHOLE] * blocks + [BARE] * (10 - blocks)
    need = Need(total=10 * 16 + 3, block=16, drafts=True)
    best = found(there, {}, need)
    anew = (need.total - FRESH) // 16
    if anew * 16 - blocks * 16 >= FRESH:
        assert best == Plan(anew, None, headed=False)
        assert need.total - best.length(16) >= FRESH
    else:
        assert best == Plan(blocks, None, headed=True)


def test_a_row_whose_text_depends_on_its_drafts_never_lets_the_head_begin_anew() -> None:
    need = Need(total=1000, block=16, drafts=True, anew=False)
    assert found([BARE] * 60, {}, need) == Plan(headed=True)


def test_the_better_of_two_is_taken_part_by_part() -> None:
    assert There(PASSES, None).best(There(None, RESTORES)) == There(PASSES, RESTORES)
    assert There(RESTORES, GAPPED).best(There(PASSES, PASSES)) == There(RESTORES, PASSES)
