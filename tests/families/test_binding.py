"""A head that does not fit to the last tensor is refused with names; a damaged pack is said to be one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import Cancelled, DataLoss, FailedPrecondition, MtplxError
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.families.load_head import _fill_module
from mtplxd.packs.headers import read_metadata
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def copy(tiny_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder, tmp_path / "copy"))


def rewrite(folder: Path, change: Change, metadata: dict[str, str] | None = None) -> None:
    file = folder / "mtp.safetensors"
    tensors, kept = mx.load(str(file)), read_metadata(file)
    mx.eval(*tensors.values())
    change(tensors)
    mx.save_safetensors(str(file), tensors, {**kept, **(metadata or {})})


def refusal(folder: Path, kind: type[MtplxError] = FailedPrecondition) -> str:
    with pytest.raises(kind) as refused:
        load_model(read_pack(folder))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_missing_tensor_is_named(copy: Path) -> None:
    rewrite(copy, lambda tensors: tensors.pop("mtp.layers.0.mlp.up_proj.weight"))
    assert "mtp.layers.0.mlp.up_proj.weight" in refusal(copy)


def test_a_tensor_nobody_uses_is_named(copy: Path) -> None:
    rewrite(copy, lambda tensors: tensors.update({"mtp.layers.0.mlp.extra.weight": mx.zeros((4,))}))
    assert "mtp.layers.0.mlp.extra.weight" in refusal(copy)


def test_a_misshapen_tensor_is_named(copy: Path) -> None:
    rewrite(copy, lambda tensors: tensors.update({"mtp.norm.weight": mx.ones((32,), mx.bfloat16)}))
    assert "mtp.norm.weight" in refusal(copy)


def test_a_norm_of_zeros_is_named(copy: Path) -> None:
    rewrite(copy, lambda tensors: tensors.update({"mtp.norm.weight": mx.zeros((64,), mx.bfloat16)}))
    assert "mtp.norm.weight is all zero" in refusal(copy)


def test_a_head_of_another_body_is_refused(copy: Path) -> None:
    rewrite(copy, lambda _: None, {"body_fingerprint": "sha256:" + "0" * 64})
    assert "another body" in refusal(copy)


def test_any_refused_head_still_decodes_plainly(copy: Path) -> None:
    rewrite(copy, lambda tensors: tensors.pop("mtp.fc.weight"))
    refusal(copy)
    assert load_model(read_pack(copy), plain=True).head is None


@pytest.mark.parametrize(
    ("lost", "gained"), [(["enorm.weight"], []), ([], ["stranger"]), (["absent.0"], ["absent.1"])]
)
def test_the_module_itself_binds_strictly_both_ways(
    tiny_model: LoadedModel, lost: list[str], gained: list[str]
) -> None:
    tensors = mx.load(str(tiny_model.pack.path / "mtp.safetensors"))
    weights = {
        name.removeprefix("mtp."): array for name, array in tensors.items() if "draft_vocab" not in name
    }
    for name in lost:
        weights.pop(name)
    for name in gained:
        weights[name] = mx.zeros((64,))
    with pytest.raises(FailedPrecondition, match=re.escape(f"missing {lost}, unused {gained}")):
        _fill_module(tiny_model.target.model, weights, None)  # type: ignore[attr-defined]


def test_a_body_without_one_of_its_tensors_is_data_loss(copy: Path) -> None:
    file = copy / "model.safetensors"
    tensors = mx.load(str(file))
    mx.eval(*tensors.values())
    tensors.pop("model.layers.1.mlp.up_proj.weight")
    mx.save_safetensors(str(file), tensors, {"format": "pt"})
    with pytest.raises(DataLoss, match=r"missing model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(read_pack(copy), plain=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer.json", ""),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", '{"version": "1.0", "model"'),
        ("tokenizer_config.json", "x{"),
        ("generation_config.json", "{"),
        ("generation_config.json", "[]"),
        ("generation_config.json", '{"eos_token_id": "two"}'),
    ],
)
def test_a_damaged_file_beside_the_weights_is_data_loss(copy: Path, name: str, text: str) -> None:
    (copy / name).write_text(text)
    assert "copy" in refusal(copy, DataLoss)


@pytest.mark.parametrize("name", ["tokenizer.json", "generation_config.json"])
def test_a_damaged_file_beside_the_weights_is_found_before_they_are_read(copy: Path, name: str) -> None:
    (copy / name).write_text("[]")
    read: list[int] = []
    with pytest.raises(DataLoss, match="generation_config.json" if "gen" in name else "tokenizer"):
        load_model(read_pack(copy), progress=lambda done, _: read.append(done))
    assert not read


def test_loading_reports_every_tensor_and_can_be_given_up(tiny_model: LoadedModel) -> None:
    steps: list[tuple[int, int]] = []
    load_model(tiny_model.pack, progress=lambda done, total: steps.append((done, total)))
    total = steps[0][1]
    assert steps == [(done, total) for done in range(1, total + 1)]
    with pytest.raises(Cancelled):
        load_model(tiny_model.pack, cancelled=lambda: True)


def test_weights_compute_in_float32_on_the_cpu(tiny_model: LoadedModel) -> None:
    if mx.default_device().type != mx.DeviceType.cpu:
        pytest.skip("the file's dtype is kept elsewhere")
    stored = mx.load(str(tiny_model.pack.path / "model.safetensors"))["model.norm.weight"]
    held = tiny_model.target.model.model.norm.weight  # type: ignore[attr-defined]
    assert (stored.dtype, held.dtype) == (mx.float16, mx.float32)
    assert np.array_equal(np.array(held), np.array(stored.astype(mx.float32)))


def test_a_lower_depth_may_be_asked_for(tiny_model: LoadedModel) -> None:
    assert tiny_model.depth_max == 8
    assert load_model(tiny_model.pack, depth_max=3).depth_max == 3


def test_stop_ids_come_from_the_generation_config_and_else_from_the_config(copy: Path) -> None:
    assert load_model(read_pack(copy), plain=True).eos_ids == frozenset({2})
    (copy / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    assert load_model(read_pack(copy), plain=True).eos_ids == frozenset({0, 2})
    (copy / "generation_config.json").unlink()
    assert load_model(read_pack(copy), plain=True).eos_ids == frozenset({2})
