"""Training: a seed means one result, an interruption changes no byte, and what comes out is a head that loads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.adapter import AdapterHead
from mtplxd.families.body import Body
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.forge import adapter_run
from mtplxd.forge.adapter_run import AdapterRun
from mtplxd.forge.batches import RowSource, draft_index_of
from mtplxd.forge.beginning import begin_module
from mtplxd.forge.learner import Learner
from mtplxd.forge.pacing import Pace
from mtplxd.forge.shards import FIELDS, Shard, list_shards, read_shard, write_shard
from mtplxd.forge.sizing import Recipe
from mtplxd.forge.trainer import Schedule, Trainer
from mtplxd.packs.detector import detect_head
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx

Told = list[tuple[str, int, int, str]]


class Killed(Exception):
    pass


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_run, "HELD_OUT", ("What is a kiln?", "Is snow safe to eat?"))


def execute(folder: Path, tiny: LoadedModel, recipe: Recipe, die_at: tuple[str, int] | None = None) -> Told:
    told: Told = []

    def tell(stage: str, done: int, total: int, detail: str) -> None:
        told.append((stage, done, total, detail))
        if (stage, done) == die_at:
            raise Killed

    AdapterRun(folder, tiny, recipe, Pace(tell), check_every=2).execute()
    return told


def test_a_run_gives_a_head_that_its_pack_loads(
    tmp_path: Path, tiny: LoadedModel, tiny_folder: Path, make_recipe: Callable[..., Recipe]
) -> None:
    told = execute(tmp_path / "run", tiny, make_recipe())
    assert [stage for stage, *_ in told if stage != "train"] == ["data", "data", "data", "measure", "measure"]
    pack_folder = shutil.copytree(tiny_folder, tmp_path / "pack")
    shutil.copy(tmp_path / "run" / f"{tiny.name}.safetensors", pack_folder / "mtp.safetensors")
    pack = read_pack(pack_folder)
    report = detect_head(pack)
    assert report.present
    assert not report.missing
    assert not report.extra
    loaded = load_model(pack)
    assert loaded.head is not None
    assert loaded.head.draft_vocab.shape == (120,)
    record = json.loads((tmp_path / "run" / f"{tiny.name}.json").read_text())
    assert [point["step"] for point in record["curve"]] == [2, 4]
    assert record["recipe"]["taps"] == [2, 4]
    checkpoint = mx.load(str(tmp_path / "run" / "checkpoint.safetensors"))["module.norm.weight"]
    sharpened = np.array(checkpoint * record["sharpened"])
    np.testing.assert_allclose(np.array(loaded.head.module.norm.weight), sharpened, rtol=1e-2)
    assert record["acceptance"]["overlap"][0] >= record["curve"][-1]["overlap"][0]


@pytest.mark.parametrize("share", [1, 3])
def test_updates_raise_the_acceptance_they_are_made_for(
    tmp_path: Path, tiny: LoadedModel, make_recipe: Callable[..., Recipe], share: int
) -> None:
    run = AdapterRun(tmp_path, tiny, make_recipe(steps=1), Pace(lambda *_: None))
    run.execute()
    body = Body(tiny.target.model, (2, 4))  # type: ignore[attr-defined]
    draft_vocab = np.load(tmp_path / "draft-vocab.npy")
    module = begin_module(body, 2, 48, np.load(tmp_path / "fc.npy"))
    schedule = Schedule(steps=12, warmup=1, peak=3e-3, rejection=0.5)
    trainer = Trainer(Learner(AdapterHead(module, body, mx.array(draft_vocab), 3)), schedule)
    source = RowSource(tmp_path / "data", [0], draft_index_of(draft_vocab, body.vocab_size), 0.95, seed=0)
    batch = source.batch(0, 2, 3, share)
    found = [trainer.train_step(batch)[1] for _ in range(12)]
    assert all(last > first + 0.1 for first, last in zip(found[0], found[-1], strict=True))


def test_a_run_that_died_goes_on_to_the_same_bytes(
    tmp_path: Path, tiny: LoadedModel, make_recipe: Callable[..., Recipe]
) -> None:
    execute(tmp_path / "whole", tiny, make_recipe())
    for die_at in (("data", 2), ("train", 1), ("measure", 2), ("train", 3)):
        with pytest.raises(Killed):
            execute(tmp_path / "died", tiny, make_recipe(), die_at)
    execute(tmp_path / "died", tiny, make_recipe())
    for name in (f"{tiny.name}.safetensors", f"{tiny.name}.json", "checkpoint.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "died" / name).read_bytes()

    execute(tmp_path / "other", tiny, make_recipe(seed=1))
    name = f"{tiny.name}.safetensors"
    assert (tmp_path / "whole" / name).read_bytes() != (tmp_path / "other" / name).read_bytes()


def test_a_folder_is_not_continued_with_other_settings(
    tmp_path: Path, tiny: LoadedModel, make_recipe: Callable[..., Recipe]
) -> None:
    AdapterRun(tmp_path, tiny, make_recipe(), Pace(lambda *_: None))
    AdapterRun(tmp_path, tiny, make_recipe(), Pace(lambda *_: None))
    with pytest.raises(FailedPrecondition, match="other settings"):
        AdapterRun(tmp_path, tiny, make_recipe(seed=1), Pace(lambda *_: None))


def test_a_half_written_shard_is_not_data(tmp_path: Path) -> None:
    shard = Shard(*(np.full((2, 3), place) for place in range(len(FIELDS))))
    write_shard(tmp_path, 4, shard)
    (tmp_path / "shard-00005.partial").mkdir()
    assert list_shards(tmp_path) == [4]
    read = read_shard(tmp_path, 4)
    assert all(np.array_equal(getattr(read, name), getattr(shard, name)) for name in FIELDS)


SMALL = {"tokens": 480, "length": 48, "batch": 2, "rows": 4, "draft-vocab": 120, "mlp-width": 48}
COMMAND = [word for name, value in SMALL.items() for word in (f"--{name}", str(value))]


def start(tiny_folder: Path, home: Path, run: Path, steps: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mtplxd.forge.worker", "train", str(tiny_folder), "--run", str(run)]
    environment = {**os.environ, "MTPLXD_HOME": str(home)}
    return subprocess.Popen(
        [*command, "--steps", str(steps), *COMMAND],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_the_command_survives_kill_9(tmp_path: Path, tiny_folder: Path) -> None:
    run = tmp_path / "run"
    first = start(tiny_folder, tmp_path, run, steps=3)
    assert first.stderr is not None
    for line in first.stderr:
        if line.startswith("data 1/"):
            break
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second = start(tiny_folder, tmp_path, run, steps=3)
    out, errors = second.communicate()
    assert second.returncode == 0, errors
    assert Path(out.strip()) == run / "tiny.safetensors"
    assert json.loads((run / "progress.json").read_text())["stage"] == "measure"


def test_an_unknown_model_is_one_line(tmp_path: Path) -> None:
    done = start(tmp_path / "nowhere", tmp_path, tmp_path / "run", steps=1)
    _, errors = done.communicate()
    assert done.returncode != 0
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
