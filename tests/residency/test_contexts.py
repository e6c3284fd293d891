"""What contexts may take follows the plan, the system and what they take already; one rule refuses what never fits."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtplxd.engine.scheduling.admission import HEADROOM, Admit, admit, row_need
from mtplxd.engine.scheduling.footprint import RowHold
from mtplxd.errors import ResourceExhausted
from mtplxd.packs.memory import Footprint
from mtplxd.residency.manager import READ_S
from mtplxd.residency.plan import GIB, RUNTIME_BYTES, Need, Refuse, Resident, decide, kv_budget, margin_bytes
from mtplxd.residency.plan import Admit as Fits
from support.fake_residency import WAIT_S, Rig, make_rig

MIB = 1 << 20


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = make_rig(tmp_path, budget=10 * GIB + RUNTIME_BYTES)
    rig.catalog.kv = GIB
    rig.loader.footprint = Footprint(position=MIB, row=10 * MIB)
    return rig


def test_contexts_get_what_weights_and_transients_leave_of_the_plan(rig: Rig) -> None:
    rig.catalog.add("a", 4 * GIB)
    rig.load("a")
    assert rig.residency.kv_budget(0) == 7 * GIB
    rig.catalog.add("b", 5 * GIB)
    rig.load("b")
    assert rig.residency.kv_budget(0) == 3 * GIB


def test_a_model_that_is_gone_leaves_its_room(rig: Rig) -> None:
    rig.catalog.add("a", 4 * GIB)
    rig.load("a")
    rig.residency.unload("a").result(WAIT_S)
    assert rig.residency.kv_budget(0) == 10 * GIB


def test_what_others_took_of_the_system_bounds_contexts_but_not_what_they_hold(rig: Rig) -> None:
    rig.catalog.add("a", 4 * GIB)
    rig.load("a")
    margin = margin_bytes(rig.memory.total)
    rig.memory.free_bytes = margin + 2 * GIB
    assert rig.residency.kv_budget(3 * GIB) == 5 * GIB
    rig.memory.free_bytes = 0
    rig.clock.now += READ_S
    assert rig.residency.kv_budget(margin + 2 * GIB) == 2 * GIB


def test_the_room_a_model_was_loaded_with_is_never_taken_back(rig: Rig) -> None:
    rig.catalog.add("a", 4 * GIB)
    rig.load("a")
    rig.memory.free_bytes = 0
    assert rig.residency.kv_budget(0) == GIB


def test_the_system_is_read_once_a_second_whatever_asks(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr(rig.memory, "free", lambda: reads.append(1) or 64 * GIB)
    for _ in range(100):
        rig.residency.kv_budget(0)
    assert len(reads) == 1
    rig.clock.now += READ_S
    rig.residency.kv_budget(0)
    assert len(reads) == 2


def test_a_context_that_never_fits_is_refused_with_both_numbers(rig: Rig) -> None:
    pack = rig.catalog.add("a", 4 * GIB)
    rig.load("a")
    most = (7 * GIB - 10 * MIB) // MIB // 256 * 256
    rig.residency.check_context(pack, most)
    with pytest.raises(
        ResourceExhausted, match=r"not enough memory for this context .*shorten the prompt"
    ) as no:
        rig.residency.check_context(pack, most + 1)
    assert (no.value.needed, no.value.available) == ((most + 256 + 10) * MIB, 7 * GIB)


def test_what_others_hold_now_does_not_refuse_a_context_that_fits_alone(rig: Rig) -> None:
    pack = rig.catalog.add("a", 4 * GIB)
    rig.load("a")
    rig.kv_held[0] = 7 * GIB
    rig.residency.check_context(pack, 4096)


def test_an_unmeasured_model_is_weighed_by_the_plans_figure(rig: Rig) -> None:
    rig.loader.footprint = Footprint()
    pack = rig.catalog.add("a", 4 * GIB)
    rig.load("a")
    rig.residency.check_context(pack, 7 * GIB // (2 * 2 * 8 * 2))
    with pytest.raises(ResourceExhausted):
        rig.residency.check_context(pack, 7 * GIB // (2 * 2 * 8 * 2) + 1)


def test_the_check_before_the_queue_and_the_engines_own_agree(rig: Rig) -> None:
    pack = rig.catalog.add("a", 4 * GIB)
    rig.load("a")
    footprint, budget = rig.loader.footprint, rig.residency.kv_budget(0)
    for prompt, tokens in [(10, 10), (6000, 900), (6000, 1200), (6900, 200), (7100, 1), (9000, 9000)]:
        need = row_need(prompt, tokens, context=100_000)
        verdict = admit(RowHold("x", "a", footprint, prompt, need.most), [], budget)
        try:
            rig.residency.check_context(pack, need.most)
        except ResourceExhausted:
            assert not isinstance(verdict, Admit) or prompt + HEADROOM < need.most
        else:
            assert isinstance(verdict, Admit)


def test_a_load_is_planned_around_what_running_contexts_hold(rig: Rig) -> None:
    rig.catalog.add("a", 4 * GIB)
    rig.catalog.add("b", 5 * GIB)
    lease = rig.residency.acquire("a").result(WAIT_S)
    rig.kv_held[0] = 3 * GIB
    with pytest.raises(ResourceExhausted):
        rig.residency.acquire("b").result(WAIT_S)
    rig.kv_held[0] = 2 * GIB
    rig.residency.acquire("b").result(WAIT_S)
    lease.release()


sizes = st.integers(0, 32 * GIB)


@given(st.lists(st.builds(Need, sizes, sizes, sizes, sizes), max_size=4), sizes, sizes, sizes)
def test_contexts_never_get_more_than_plan_or_system_beyond_their_floor(
    planned: list[Need], budget: int, free: int, held: int
) -> None:
    found = kv_budget(budget, free, GIB, planned, held)
    floor = sum(need.kv for need in planned)
    assert found >= floor
    if found > floor:
        assert found - held <= free - GIB
        assert RUNTIME_BYTES + found + sum(need.total - need.kv for need in planned) <= budget


def test_running_contexts_count_where_they_outgrew_their_floor() -> None:
    busy = Resident("a", Need(4 * GIB, kv=GIB), False, 0.0)
    budget = 10 * GIB + RUNTIME_BYTES
    need = Need(4 * GIB, kv=GIB)
    assert decide(need, budget, 64 * GIB, GIB, [busy], kv_held=GIB) == Fits()
    assert decide(need, budget, 64 * GIB, GIB, [busy], kv_held=GIB + 1) == Refuse(5 * GIB, 5 * GIB - 1)
