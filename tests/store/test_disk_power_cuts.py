"""After a power cut at any moment the store opens, all blocks verify, and what was acknowledged is there."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest
from mtplxd.store.keeper import Keeper
from mtplxd.store.places import Places
from support.block_store import PLENTY, WAIT_S, chain_of, keep, offered_of, open_store, whole
from support.power_cuts import Recorder, State, judge, materialise, record, states_of

SHARE, STATES = 0.004, 60


def faults(recorder: Recorder, folder: Path, states: int = STATES, share: float = SHARE) -> set[str]:
    some = (state for state in states_of(recorder, random.Random(1), share) if state.kept or share == SHARE)
    return {judge(state, folder) for state in islice(some, states)} - {""}


def test_every_state_a_power_cut_leaves_opens_and_has_what_was_acknowledged(tmp_path: Path) -> None:
    recorder = record(tmp_path / "store", rounds=25)
    assert {asked.what for asked in recorder.asked} == {"folder", "write", "rename", "remove", "sync"}
    assert max(len(asked.kept) for asked in recorder.asked) > 20
    assert faults(recorder, tmp_path / "store") == set()


def test_the_states_differ_in_all_that_a_power_cut_may_take(tmp_path: Path) -> None:
    recorder = record(tmp_path / "store", rounds=6)
    states = [*islice(states_of(recorder, random.Random(2), 0.1), 2000)]
    assert len({state.files for state in states}) > 100
    assert {bool(state.index) for state in states} == {True, False}
    unfinished = [data for state in states for path, data in state.files if path.suffix == ".tmp"]
    assert b"" in unfinished
    assert any(data.endswith(bytes(64)) for data in unfinished)


def test_a_store_that_does_not_sync_names_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "sync_folder", lambda _self, _path: None)
    recorder = record(tmp_path / "store", rounds=3)
    assert any(
        "lost what was acknowledged" in fault for fault in faults(recorder, tmp_path / "store", 30, 0.2)
    )


def test_a_store_that_acknowledges_too_early_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Keeper._put_in_place

    def early(self: Keeper, names: list[bytes]) -> None:
        recorder = self.filing
        assert isinstance(recorder, Recorder)
        before = recorder.kept
        recorder.kept = lambda: before() | {*names}
        real(self, names)
        recorder.kept = before

    monkeypatch.setattr(Keeper, "_put_in_place", early)
    recorder = record(tmp_path / "store", rounds=3)
    assert any(
        "lost what was acknowledged" in fault for fault in faults(recorder, tmp_path / "store", 30, 0.2)
    )


def test_what_was_cleared_does_not_come_back_after_a_power_cut(tmp_path: Path) -> None:
    recorder = Recorder(Places(tmp_path / "store"))
    (tmp_path / "store").mkdir()
    store = open_store(tmp_path / "store", PLENTY, recorder)
    keep(store, [offered_of(chain_of(range(64)), place) for place in range(8)])
    store.clear()
    assert store.close(WAIT_S)
    removed = {
        asked.path.parent: number for number, asked in enumerate(recorder.asked) if asked.what == "remove"
    }
    synced = {asked.path: number for number, asked in enumerate(recorder.asked) if asked.what == "sync"}
    assert removed
    assert all(synced[folder] > number for folder, number in removed.items())


def test_a_power_cut_that_keeps_everything_loses_nothing(tmp_path: Path) -> None:
    recorder = Recorder(Places(tmp_path / "store"))
    (tmp_path / "store").mkdir()
    chain = chain_of(range(64))
    store = open_store(tmp_path / "store", PLENTY, recorder)
    keep(store, [offered_of(chain, place) for place in range(8)])
    state = State(
        frozenset(recorder.files.items()), frozenset(recorder.folders), None, frozenset(chain.nodes[1:])
    )
    assert store.close(WAIT_S)
    assert judge(state, tmp_path / "store") == ""
    again = open_store(tmp_path / "store", PLENTY, materialise(state, tmp_path / "store"))
    assert whole(again, chain) == 8
    again.close(WAIT_S)
