"""A new head for bodies of several families: it is kept if held-out text gains, bound to its body, and loads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.adapter import AdapterHead
from mtplxd.families.load import load_model
from mtplxd.forge import adapter_run, new_head
from mtplxd.forge.sizing import Sizes
from mtplxd.forge.train_plan import TrainPlan
from mtplxd.forge.training import Training
from mtplxd.forge.training_run import train_new_head
from mtplxd.packs.detector import detect_head
from mtplxd.packs.headers import read_headers, read_metadata, write_tensors
from mtplxd.packs.pack import read_pack
from support.cut_short import PROMPTS, SIDECAR, without_head
from support.fine_tunings import tokens_a_round, with_trained

SMALL = Sizes(tokens=3840, steps=40, rows=24, length=80, batch=8, held_out=6)


@pytest.fixture(scope="module", autouse=True)
def small() -> object:
    patch = pytest.MonkeyPatch()
    patch.setattr(new_head, "QUICK_NEW", SMALL)
    yield
    patch.undo()


def plan_of(folder: Path) -> TrainPlan:
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
    return TrainPlan(quick=True, prompts=prompts, raw=True)


@dataclass
class Done:
    name: str
    pack: Path
    run: Path
    training: Training
    made: Path


@pytest.fixture(scope="module", params=["qwen3_5"])
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    name = request.param
    root = tmp_path_factory.mktemp(name)
    pack = without_head(name, root / "pack")
    assert not detect_head(read_pack(pack)).present
    training = train_new_head(pack, root / "run", plan_of(root), lambda *_: None)
    assert training.passed, training.reason
    return Done(name, pack, root / "run", training, with_trained(pack, root / "run", training, root / "made"))


def test_a_body_without_a_head_drafts_with_its_new_one(done: Done) -> None:
    assert tokens_a_round(done.made, done.name, prompts=4) > 1.3


def test_what_held_out_text_says_is_better_than_the_beginning_and_than_a_guess(done: Done) -> None:
    training = done.training
    assert training.after["overlap"][0] > training.before["overlap"][0] + 0.02
    assert training.after["overlap"][0] > training.guess + 0.1
    assert training.method == "new"
    assert training.parent_fingerprint == ""


def test_the_file_states_its_block_and_binds_to_nothing_else(done: Done, tmp_path: Path) -> None:
    metadata = read_metadata(done.made / SIDECAR)
    assert json.loads(metadata["block"])["heads"] * json.loads(metadata["block"])["head_dim"] == 128
    assert metadata["origin"] == "trained"
    report = detect_head(read_pack(done.made))
    assert report.layout == "adapter"
    assert not report.problems
    other = without_head("mimo" if done.name == "qwen3_5" else "qwen3_5", tmp_path / "other")
    (other / SIDECAR).write_bytes((done.made / SIDECAR).read_bytes())
    with pytest.raises(FailedPrecondition, match="another body"):
        load_model(read_pack(other))


SIZES = {"heads": 4, "kv_heads": 1, "head_dim": 32, "rope_theta": 1e4, "eps": 1e-5}
IMPOSSIBLE = (
    {"heads": 4},
    {**SIZES, "kv_heads": 3},
    {**SIZES, "head_dim": -32},
    {**SIZES, "rope_theta": "x"},
    {**SIZES, "stranger": 1},
    [],
)


@pytest.mark.parametrize("block", [*map(json.dumps, IMPOSSIBLE), "x"])
def test_a_block_of_impossible_sizes_is_a_problem_not_a_crash(done: Done, block: str, tmp_path: Path) -> None:
    folder = without_head(done.name, tmp_path / "pack")
    headers = read_headers(done.made / SIDECAR)
    data = (done.made / SIDECAR).read_bytes()
    write_tensors(
        folder / SIDECAR,
        {name: (info.dtype, info.shape) for name, info in headers.items()},
        ((name, data[info.begin : info.end]) for name, info in headers.items()),
        {**read_metadata(done.made / SIDECAR), "block": block},
    )
    report = detect_head(read_pack(folder))
    assert any("block" in problem for problem in report.problems)
    with pytest.raises(FailedPrecondition):
        load_model(read_pack(folder))


def test_a_run_that_is_done_is_not_done_again(done: Done) -> None:
    told: list[str] = []
    again = train_new_head(
        done.pack, done.run, plan_of(done.run.parent), lambda stage, *_: told.append(stage)
    )
    assert again == done.training
    assert set(told) == {"load"}


def test_a_run_is_not_continued_with_other_prompts(tmp_path: Path, tiny_folder: Path) -> None:
    def stop(stage: str, *_: object) -> None:
        if stage == "data":
            raise KeyboardInterrupt

    plan = plan_of(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train_new_head(tiny_folder, tmp_path / "run", plan, stop)
    with pytest.raises(FailedPrecondition, match="other settings"):
        train_new_head(tiny_folder, tmp_path / "run", TrainPlan(quick=True), lambda *_: None)


def test_a_body_of_the_llama_family_has_a_block_of_its_own_kind(tmp_path: Path, tiny_folder: Path) -> None:
    training = train_new_head(tiny_folder, tmp_path / "run", TrainPlan(quick=True), lambda *_: None)
    assert training.passed, training.reason
    assert "block" not in read_metadata(tmp_path / "run" / training.sidecar)
    made = with_trained(tiny_folder, tmp_path / "run", training, tmp_path / "made")
    assert isinstance(load_model(read_pack(made)).head, AdapterHead)


def test_a_new_head_that_is_no_use_is_a_failure_with_a_reason(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ruin(path: Path, parameters: dict[str, object], *rest: object, **more: str) -> None:
        spoilt = {name: array * 0 + 1 if "fc" in name else array for name, array in parameters.items()}
        write(path, spoilt, *rest, **more)

    write = adapter_run.write_sidecar
    monkeypatch.setattr(adapter_run, "write_sidecar", ruin)
    training = train_new_head(tiny_folder, tmp_path / "run", TrainPlan(quick=True, steps=1), lambda *_: None)
    assert not training.passed
    assert training.document()["verdict"] == "training_failed"
    assert not list((tmp_path / "run").rglob("mtp.safetensors"))
