"""Kept choices: found again by the same key, stale under other versions, ignored where they cannot be true."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mtplxd.platform.machine import Machine
from mtplxd.tune.keys import TunedKey, tuned_key
from mtplxd.tune.plan import AUTO
from mtplxd.tune.records import TuningFile
from mtplxd.tune.tuned import SECTION, TunedDepth, TunedDepths

MACHINE = Machine(
    chip="M9", memory=1 << 34, cores=8, arch="arm64", os="macOS 26.0 (25A1)", macos="26.0", rosetta=False,
    power="normal", python="3.12.1",
)  # fmt: skip
SAMPLER = {"asked": {}, "pack": {"temperature": 0.6}}
TUNED = TunedDepth(
    depth=2, ratio=1.4, low=1.3, high=1.5, acceptance=0.6, measured_at=1.7e9, settings="ab",
    curve={"version": 1}, result={"model": "m"},
)  # fmt: skip


def key(**more: Any) -> TunedKey:
    given: dict[str, Any] = {
        "fingerprint_body": "body", "fingerprint_head": "head", "machine": MACHINE, "backend": "gpu",
        "sampler": SAMPLER, "mlx": "0.32", "mtplxd": "0.1.0",
    } | more  # fmt: skip
    return tuned_key(
        given.pop("fingerprint_body"),
        given.pop("fingerprint_head"),
        given.pop("machine"),
        given.pop("backend"),
        given.pop("sampler"),
        **given,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.json"


@pytest.fixture
def kept(path: Path) -> TunedDepths:
    return TunedDepths(TuningFile(path))


@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint_body": "other"},
        {"fingerprint_head": "other"},
        {"backend": "cpu"},
        {"machine": replace(MACHINE, chip="M1")},
        {"machine": replace(MACHINE, memory=1 << 33)},
        {"machine": replace(MACHINE, os="Linux 6.1")},
        {"sampler": {"asked": {"temperature": 0.6}, "pack": {}}},
        {"sampler": {"asked": {}, "pack": {"temperature": 0.7}}},
    ],
    ids=["body", "head", "backend", "chip", "memory", "system", "asked", "pack"],
)
def test_a_choice_is_of_one_pack_machine_and_sampler(kept: TunedDepths, change: dict[str, Any]) -> None:
    kept.save(key(), TUNED)
    assert kept.find(key(**change)) is None
    assert key(**change).name != key().name


@pytest.mark.parametrize(
    "change",
    [{"mlx": "0.33"}, {"mtplxd": "0.2.0"}, {"machine": replace(MACHINE, os="macOS 26.1 (25B2)")}],
    ids=["mlx", "mtplxd", "os"],
)
def test_other_versions_alone_leave_it_used_and_stale(kept: TunedDepths, change: dict[str, Any]) -> None:
    kept.save(key(), TUNED)
    assert kept.find(key()) == TUNED
    assert kept.find(key(**change)) == replace(TUNED, stale=True)
    assert key(**change).name != key().name


def test_nothing_of_one_start_is_in_a_key() -> None:
    later = replace(MACHINE, power="low", python="3.13", rosetta=True)
    assert key(machine=later) == key()


@pytest.mark.parametrize("depth", [1, 3, AUTO])
def test_a_choice_survives_the_daemon_and_takes_the_place_of_the_one_before(path: Path, depth: int) -> None:
    TunedDepths(TuningFile(path)).save(key(mlx="0.31"), replace(TUNED, depth=1))
    TunedDepths(TuningFile(path)).save(key(), replace(TUNED, depth=depth))
    assert TunedDepths(TuningFile(path)).find(key()) == replace(TUNED, depth=depth)
    assert len(json.loads(path.read_text())[SECTION]) == 1


def test_clearing_drops_a_choice_of_any_version(kept: TunedDepths) -> None:
    kept.save(key(mlx="0.31"), TUNED)
    assert kept.clear(key())
    assert kept.find(key()) is None
    assert not kept.clear(key())


def test_a_choice_whose_drafts_were_not_accepted_is_ignored(kept: TunedDepths) -> None:
    kept.save(key(), replace(TUNED, acceptance=0.05))
    assert kept.find(key()) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 2},
        {"depth": 0},
        {"depth": 65},
        {"depth": True},
        {"depth": "deep"},
        {"ci95": [1.0]},
        {"ci95": None},
        {"ratio": "much"},
        {"measured_at": None},
    ],
)
def test_a_damaged_choice_is_as_if_there_were_none(
    path: Path, kept: TunedDepths, damage: dict[str, Any]
) -> None:
    kept.save(key(), TUNED)
    everything = json.loads(path.read_text())
    everything[SECTION][key().subject] |= damage
    path.write_text(json.dumps(everything))
    assert kept.find(key()) is None


def test_a_disk_that_takes_nothing_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    kept = TunedDepths(TuningFile(blocked / "tuning.json"))
    assert not kept.save(key(), TUNED)
    assert not kept.clear(key())


def test_other_sections_stay_when_a_choice_goes(path: Path, kept: TunedDepths) -> None:
    TuningFile(path).write("depths", "k", {"at": 1})
    kept.save(key(), TUNED)
    kept.clear(key())
    assert json.loads(path.read_text()) == {"depths": {"k": {"at": 1}}, SECTION: {}}
