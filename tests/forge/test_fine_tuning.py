"""Fine-tuning: a head whose training was cut short drafts better afterwards, as the file that was written, strictly
bound, and named for what it is."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.load import load_model
from mtplxd.forge.pacing import Pace
from mtplxd.forge.sizing import Tuning
from mtplxd.forge.training import WORK, Training, read_training
from mtplxd.packs.binding import check_head
from mtplxd.packs.fingerprint import body_fingerprint, own_head_fingerprint
from mtplxd.packs.headers import read_headers, read_metadata
from mtplxd.packs.pack import read_pack
from support.checkpoint_files import read_tensors
from support.cut_short import SIDECAR, cut_short
from support.fine_tunings import settle, tokens_a_round, tune, with_trained

LEAST_GAIN = 1.1


@dataclass
class Done:
    name: str
    pack: Path
    run: Path
    training: Training
    made: Path


def settings_for(method: str) -> Tuning:
    """Low-rank additions begin at nothing, and need larger steps."""
    return settle(method) if method == "full" else settle(method, steps=24, peak=5e-3)


@pytest.fixture(scope="module", params=[("glm4_moe_lite", "full"), ("qwen3_5", "lora")])
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    name, method = request.param
    root = tmp_path_factory.mktemp(f"{name}-{method}")
    pack, run = cut_short(name, root / "pack"), root / "run"
    training = tune(pack, run, settings_for(method))
    made = with_trained(pack, run, training, root / "made") if training.passed else pack
    return Done(name, pack, run, training, made)


def test_a_head_that_was_cut_short_gives_more_tokens_a_round(done: Done) -> None:
    assert done.training.passed, done.training.reason
    before, after = tokens_a_round(done.pack, done.name), tokens_a_round(done.made, done.name)
    assert after >= LEAST_GAIN * before


def test_the_result_says_what_was_measured_on_held_out_text(done: Done) -> None:
    training = done.training
    assert training.after["overlap"][0] > training.before["overlap"][0] + 0.05
    assert training.before["overlap"][0] > training.guess > 0.05
    assert training.steps == settings_for(training.method).schedule.steps
    assert training.parameters > 10_000
    assert training.document()["verdict"] == "trained"
    assert str(done.run) not in str(training.document())


def test_the_head_names_its_body_its_parent_and_that_it_was_trained(done: Done) -> None:
    old, new = read_pack(done.pack), read_pack(done.made)
    metadata = read_metadata(done.made / SIDECAR)
    assert metadata["origin"] == "trained"
    assert metadata["body_fingerprint"] == done.training.body_fingerprint == body_fingerprint(old)
    assert metadata["trained_from"] == done.training.parent_fingerprint == own_head_fingerprint(old)
    assert done.training.head_fingerprint == own_head_fingerprint(new) != own_head_fingerprint(old)


def test_the_file_has_the_names_shapes_and_dtypes_it_had(done: Done) -> None:
    layouts = [
        {name: (info.dtype, info.shape) for name, info in read_headers(folder / SIDECAR).items()}
        for folder in (done.pack, done.made)
    ]
    assert layouts[0] == layouts[1]


def test_what_is_not_trained_stays_as_it_was(done: Done) -> None:
    """Biases that order experts, copies of the body's matrices; by low-rank additions all but linears."""
    old, new = (read_tensors_of(folder / SIDECAR) for folder in (done.pack, done.made))
    kept = [name for name in old if name.endswith(("correction_bias", "embed_tokens.weight", "head.weight"))]
    if done.training.method == "lora":
        kept += [name for name in old if "norm" in name]
    assert all(np.array_equal(old[name], new[name]) for name in kept)
    changed = [name for name in old if not np.array_equal(old[name], new[name])]
    assert any("eh_proj" in name or "fc" in name or "input_proj" in name for name in changed)


def read_tensors_of(file: Path) -> dict[str, np.ndarray]:
    return {
        name: np.frombuffer(file.read_bytes()[info.begin : info.end], np.uint8)
        for name, info in read_headers(file).items()
    }


def test_the_pack_it_was_made_from_is_left_as_it_is(done: Done) -> None:
    assert (done.pack / SIDECAR).read_bytes() == read_again(done).read_bytes()


def read_again(done: Done) -> Path:
    folder = done.run.parent / "again"
    if not folder.is_dir():
        cut_short(done.name, folder)
    return folder / SIDECAR


def test_the_head_is_refused_on_another_body(done: Done, tmp_path: Path) -> None:
    other = shutil.copytree(done.made, tmp_path / "other")
    norm = next(n for n in read_tensors(other) if n.endswith("norm.weight"))
    change_one_byte(other, norm)
    with pytest.raises(FailedPrecondition, match="another body"):
        check_head(read_pack(other))
    with pytest.raises(FailedPrecondition, match="another body"):
        load_model(read_pack(other))


def change_one_byte(folder: Path, name: str) -> None:
    pack = read_pack(folder)
    path, info = pack.body_tensors[next(n for n in pack.body_tensors if n.endswith(name))]
    content = bytearray(path.read_bytes())
    content[info.begin] ^= 1
    path.write_bytes(content)


def test_a_run_that_is_done_is_not_done_again(done: Done) -> None:
    told: list[str] = []
    again = tune(
        done.pack, done.run, settings_for(done.training.method), Pace(lambda stage, *_: told.append(stage))
    )
    assert again == done.training == read_training(done.run)
    assert not told


def test_the_rows_are_gone_once_there_is_a_result(done: Done) -> None:
    assert sorted(path.name for path in (done.run / WORK).iterdir()) == [
        "checkpoint.safetensors",
        "curve.json",
        "mtp.safetensors",
        "recipe.json",
        "training.json",
    ]
