"""Chunks fit their budget as soon as something is known, whatever the machine, and odd measurements change nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from mtplxd.engine.chunking import FAR, SIZES, UNMEASURED, ChunkSizer, Seen, fitted

Cost = Callable[[int, int], float]


def machine(start: float, position: float, pair: float) -> Cost:
    """Seconds of a chunk on a machine with these costs."""
    return lambda positions, context: (
        start + position * positions + pair * positions * (context + positions / 2)
    )


CPU = machine(0.1, 0.0035, 1e-6)
GPU = machine(0.004, 0.00002, 2e-9)
SLOW = machine(1.5, 0.03, 5e-6)
MACHINES = {"cpu": CPU, "gpu": GPU, "slow": SLOW}


def read(
    sizer: ChunkSizer, cost: Cost, budget_s: float, total: int, begin: int = 0
) -> list[tuple[int, float]]:
    """A prompt read within a budget a chunk: the chunks and what they took."""
    context, found = begin, []
    while context < total:
        positions = min(sizer.size(budget_s, context), total - context)
        seconds = cost(positions, context)
        sizer.observe(positions, context, seconds)
        found.append((positions, seconds))
        context += positions
    return found


@pytest.mark.parametrize("cost", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("budget_s", [0.01, 0.1, 0.3, 0.5, 2.0])
def test_no_chunk_takes_much_longer_than_its_budget(cost: Cost, budget_s: float) -> None:
    sizer = ChunkSizer()
    read(sizer, cost, budget_s, 1000)
    for positions, seconds in read(sizer, cost, budget_s, 4000)[4:]:
        assert positions == SIZES[0] or seconds <= budget_s * 1.2


@pytest.mark.parametrize("cost", MACHINES.values(), ids=MACHINES)
def test_where_there_is_time_for_it_chunks_become_the_longest(cost: Cost) -> None:
    sizer = ChunkSizer()
    sizes = [positions for positions, _ in read(sizer, cost, 1000.0, 12_000)]
    assert sizes[0] == UNMEASURED
    assert sizes[10:-1] == [SIZES[-1]] * (len(sizes) - 11)


def test_a_budget_too_small_for_any_gets_the_shortest() -> None:
    sizer = ChunkSizer()
    read(sizer, CPU, 0.5, 2000)
    assert sizer.size(0.001, 0) == sizer.size(0.0, 0) == sizer.size(-1.0, 0) == SIZES[0]


@pytest.mark.parametrize("seed", range(5))
def test_sizes_are_those_there_are_and_grow_with_the_budget(seed: int) -> None:
    draw, sizer = random.Random(seed), ChunkSizer()
    for _ in range(50):
        context = draw.randrange(3000)
        found = [sizer.size(budget, context) for budget in (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 9.9)]
        assert found == sorted(found)
        assert set(found) <= set(SIZES)
        sizer.observe(found[draw.randrange(7)], context, CPU(found[3], context) * draw.uniform(0.5, 2))


def test_behind_a_long_context_chunks_get_shorter() -> None:
    sizer, steep = ChunkSizer(), machine(0.01, 0.0005, 2e-6)
    for _ in range(2):
        read(sizer, steep, 0.4, 6000)
    found = [sizer.size(0.4, context) for context in (0, 500, 1500, 3000, 6000)]
    assert found == sorted(found, reverse=True)
    assert found[0] >= 4 * found[-1]
    assert all(
        steep(size, context) <= 0.5 for size, context in zip(found, (0, 500, 1500, 3000, 6000), strict=True)
    )


def test_the_first_chunk_of_a_length_counts_for_nothing() -> None:
    sizer = ChunkSizer()
    sizer.observe(64, 0, 60.0)  # kernels are compiled
    assert sizer.expected(64, 0) is None
    assert sizer.size(0.5, 64) == UNMEASURED
    sizer.observe(64, 64, 0.2)
    assert sizer.expected(64, 64) == pytest.approx(0.2, rel=0.05)
    sizer.observe(128, 128, 60.0)
    assert sizer.expected(64, 64) == pytest.approx(0.2, rel=0.05)


def test_nothing_is_guessed_beyond_twice_what_was_measured() -> None:
    sizer = ChunkSizer()
    longest = 0
    for positions, _ in read(sizer, GPU, 1000.0, 9000):
        assert positions <= max(UNMEASURED, 2 * longest)
        longest = max(longest, positions)
    assert longest == SIZES[-1]


def test_behind_a_context_nobody_has_seen_a_chunk_is_careful() -> None:
    sizer = ChunkSizer()
    read(sizer, GPU, 1000.0, 3000)
    assert sizer.size(1000.0, 3000) == SIZES[-1]
    assert sizer.size(1000.0, 100_000) == UNMEASURED
    for _ in range(3):
        sizer.observe(UNMEASURED, 100_000, GPU(UNMEASURED, 100_000))
    assert sizer.size(1000.0, 100_000) == SIZES[-1]


@pytest.mark.parametrize("every", [3, 5, 9])
def test_chunks_that_were_disturbed_now_and_then_change_little(every: int) -> None:
    sizer, undisturbed = ChunkSizer(), ChunkSizer()
    for number in range(60):
        size, context = SIZES[number % 5], (number * 64) % 2000
        undisturbed.observe(size, context, CPU(size, context))
        sizer.observe(size, context, CPU(size, context) * (20 if number % every == every - 1 else 1))
    for size in SIZES[:6]:
        assert sizer.expected(size, 500) == pytest.approx(undisturbed.expected(size, 500), rel=0.25)


def test_a_machine_that_becomes_busy_is_believed_after_a_few_chunks() -> None:
    sizer = ChunkSizer()
    read(sizer, CPU, 0.5, 2000)
    before = sizer.size(0.5, 1000)
    for _ in range(4):
        sizer.observe(64, 1000, 3 * CPU(64, 1000))
    assert sizer.size(0.5, 1000) < before
    for _ in range(8):
        sizer.observe(64, 1000, CPU(64, 1000))
    assert sizer.size(0.5, 1000) >= before // 2


@pytest.mark.parametrize(("positions", "seconds"), [(0, 1.0), (-3, 1.0), (64, 0.0), (64, -1.0)])
def test_what_cannot_be_is_not_taken_in(positions: int, seconds: float) -> None:
    sizer = ChunkSizer()
    for _ in range(3):
        sizer.observe(positions, 0, seconds)
    assert sizer.expected(64, 0) is None


@pytest.mark.parametrize("cost", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("seed", range(5))
def test_the_fit_finds_what_chunks_cost(cost: Cost, seed: int) -> None:
    draw = random.Random(seed)
    chunks = [(draw.choice(SIZES), draw.randrange(4000)) for _ in range(32)]
    seen = [Seen(size, context, cost(size, context) * draw.uniform(0.97, 1.03)) for size, context in chunks]
    fit = fitted(seen)
    assert min(fit) >= 0
    for size, context in chunks:
        found = sum(one * term for one, term in zip(fit, Seen(size, context, 1.0).terms, strict=True))
        assert found == pytest.approx(cost(size, context), rel=0.12)


def test_of_chunks_of_one_length_it_tells_a_rate() -> None:
    seen = [Seen(64, 0, 0.3)] * 4
    assert fitted(seen) == (0.0, pytest.approx(0.3 / 64), 0.0)


def test_far_slower_chunks_are_left_out_unless_all_are() -> None:
    usual = [Seen(size, 0, 0.001 * size) for size in (32, 64, 128, 256)] * 2
    fit = fitted([*usual, Seen(64, 0, 50.0)])
    assert fit == (0.0, pytest.approx(0.001, rel=0.01), 0.0)
    assert fitted([Seen(64, 0, 50.0)]) == (0.0, pytest.approx(50 / 64), 0.0)
    assert FAR > 1


def test_chunks_thrice_as_slow_as_most_do_not_move_what_the_others_say() -> None:
    usual = [Seen(size, 0, 0.001 * size) for size in (32, 64, 128, 256)] * 2
    slow = [Seen(size, 0, 0.003 * size) for size in (32, 64, 128)]
    assert fitted([*usual, *slow]) == (0.0, pytest.approx(0.001, rel=0.01), 0.0)


def test_what_was_learnt_of_a_model_goes_with_it() -> None:
    from types import SimpleNamespace
    from typing import Any

    from mtplxd.engine.served import name_of
    from mtplxd.engine.service import Means, Service

    service = Service(Means(1), lambda *_: None, lambda *_: None)
    gone: Any = SimpleNamespace()
    stays: Any = SimpleNamespace()
    for model in (gone, stays):
        service._sizers[name_of(model)] = ChunkSizer()
    service.forget(gone)
    service.forget(gone)
    assert [*service._sizers] == [name_of(stays)]
