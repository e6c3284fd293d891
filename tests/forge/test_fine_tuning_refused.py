"""Heads that fine-tuning does not help: each is a result with a reason and no file, never an exception."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.errors import Cancelled, FailedPrecondition
from mtplxd.forge import fine_tuning
from mtplxd.forge.pacing import Pace
from mtplxd.forge.train_plan import TrainPlan
from mtplxd.forge.training import FILE, WORK, Training
from mtplxd.forge.training_run import fine_tune_head
from support.cut_short import cut_short, shuffled
from support.fine_tunings import settle, tune
from support.tiny_pack import make_tiny_pack


def check_refused(training: Training, run: Path) -> None:
    assert not training.passed
    assert training.document()["verdict"] == "training_failed"
    assert training.sidecar == training.head_fingerprint == ""
    assert not list(run.rglob("mtp.safetensors"))
    assert not list(run.rglob("*.partial"))


@pytest.mark.parametrize("name", ["mimo", "qwen3_5"])
def test_shuffled_weights_are_refused_before_any_update(name: str, tmp_path: Path) -> None:
    stages = []
    pace = Pace(lambda stage, *_: stages.append(stage))
    training = tune(shuffled(name, tmp_path / "pack"), tmp_path / "run", settle(), pace)
    check_refused(training, tmp_path / "run")
    assert "not a head of this body" in training.reason
    assert training.before["overlap"][0] <= max(0.05, training.guess)
    assert training.steps == 0
    assert set(stages) == {"data"}


def test_a_training_that_gains_nothing_fails(tmp_path: Path) -> None:
    """A rate so small that bfloat16 does not move."""
    training = tune(cut_short("mimo", tmp_path / "pack"), tmp_path / "run", settle(steps=2, peak=1e-9))
    check_refused(training, tmp_path / "run")
    assert "tokens a round after training" in training.reason
    assert training.after == training.before
    assert training.steps == 2
    assert tune(tmp_path / "pack", tmp_path / "run", settle(steps=2, peak=1e-9)) == training


def test_a_training_that_ruins_its_head_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ruin(module: object, method: object) -> dict[str, object]:
        return {path: array * 0.1 - 1 for path, array in changed(module, method).items()}

    changed = fine_tuning.changed_weights
    monkeypatch.setattr(fine_tuning, "changed_weights", ruin)
    training = tune(cut_short("mimo", tmp_path / "pack"), tmp_path / "run", settle(steps=1))
    check_refused(training, tmp_path / "run")
    assert "a constant guess would have" in training.reason


def test_a_pack_without_a_head_is_no_fine_tuning(tmp_path: Path) -> None:
    pack = make_tiny_pack(tmp_path / "tiny", head=False)
    with pytest.raises(FailedPrecondition, match="no head to train"):
        fine_tune_head(pack, tmp_path / "run", TrainPlan(quick=True), lambda *_: None)
    assert not (tmp_path / "run" / WORK / FILE).exists()


@pytest.mark.parametrize("stage", ["data", "train"])
def test_a_cancel_ends_it_wherever_it_is(stage: str, tmp_path: Path) -> None:
    pack, seen = cut_short("mimo", tmp_path / "pack"), []
    pace = Pace(lambda at, *_: seen.append(at), lambda: stage in seen)
    with pytest.raises(Cancelled):
        tune(pack, tmp_path / "run", settle(), pace)
    assert seen[-1] == stage
    assert not list(tmp_path.rglob("*.partial")) + list(tmp_path.rglob("*.tmp"))


def test_a_cancel_ends_the_load(tmp_path: Path) -> None:
    pack = cut_short("mimo", tmp_path / "pack")
    with pytest.raises(Cancelled):
        fine_tune_head(pack, tmp_path / "run", TrainPlan(quick=True), lambda *_: None, lambda: True)
