"""Loading the head of every family: wherever it lies, without a byte too many, refused when it is not whole."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.platform.mlx import mx, tree
from support.checkpoint_files import Stored, store
from support.families import FAMILIES, TINY, head_keys, write_checkpoint

COPIED = ("deepseek_v3", "deepseek_v32", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa")
PLACES: list[dict[str, Any]] = [
    {"place": "own_shard"},
    {"place": "single"},
    {"place": "mtp.safetensors"},
    {"place": "mtp/weights.safetensors"},
    {"place": "model-mtp.safetensors"},
    {"body": "mlx", "place": "mtp.safetensors"},
    {"body": "mlx"},
]
WRAPPED = {"qwen3_next": "model.", "qwen3_5": "language_model.", "qwen3_5_moe": "model.language_model."}


def opened(folder: Path, family: str, **how: Any) -> LoadedModel:
    return load_model(read_pack(write_checkpoint(folder, family, **how)))


def weights_of(model: LoadedModel) -> dict[str, np.ndarray[Any, Any]]:
    """Every parameter of body and head."""
    head: Any = model.head
    target: Any = model.target
    both = [
        *tree.tree_flatten(target.model.parameters()),
        *tree.tree_flatten({"head": head.module.parameters()}),
    ]
    return {name: np.array(array) for name, array in both}


def assert_same(one: LoadedModel, other: LoadedModel) -> None:
    ours, theirs = weights_of(one), weights_of(other)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(array, theirs[name]) for name, array in ours.items())
    assert (one.bytes_body, one.bytes_head, one.head_settings) == (
        other.bytes_body, other.bytes_head, other.head_settings,
    )  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_load_is_the_first_again(family: str, tmp_path: Path) -> None:
    assert_same(opened(tmp_path, family), load_model(read_pack(tmp_path)))


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "gemma4"][1::2])
def test_a_head_is_the_same_wherever_it_lies(family: str, tmp_path: Path) -> None:
    first = opened(tmp_path / "first", family)
    for number, how in enumerate(PLACES):
        assert_same(first, opened(tmp_path / f"{number}", family, **how))


@pytest.mark.parametrize(("family", "wrap"), WRAPPED.items())
def test_a_head_behind_the_wrap_of_another_export_is_the_same(family: str, wrap: str, tmp_path: Path) -> None:
    wrapped = opened(tmp_path / "wrapped", family, body="mlx", wrap=wrap)
    assert_same(opened(tmp_path / "first", family), wrapped)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "gemma4"][::2])
def test_a_head_takes_the_room_of_its_own_tensors(family: str, tmp_path: Path) -> None:
    wide = widened(family)
    own = sum(4 * int(np.prod(shape)) for shape in head_keys({**TINY[family], **wide}, copies=False).values())
    pack = read_pack(write_checkpoint(tmp_path, family, config=wide))
    load_model(pack)  # what a first load leaves behind for good
    plain, bare = load_and_weigh(pack, plain=True)
    whole, both = load_and_weigh(pack)
    assert plain.bytes_body == whole.bytes_body
    assert whole.bytes_head == own
    assert both - bare <= own * 1.02


def widened(family: str) -> dict[str, Any]:
    """So wide that what an allocation is rounded up by does not count."""
    if "text_config" not in TINY[family]:
        return {"hidden_size": 256} | ({"head_dim": 64} if family in ("mimo", "ernie4_5_moe") else {})
    return {"text_config": {**TINY[family]["text_config"], "hidden_size": 256}}


def load_and_weigh(pack: Pack, **how: Any) -> tuple[LoadedModel, int]:
    before = resting_memory()
    model = load_model(pack, **how)
    return model, resting_memory() - before


@pytest.mark.parametrize("family", COPIED)
def test_copies_of_the_bodys_matrices_take_no_room_and_others_are_kept(family: str, tmp_path: Path) -> None:
    without, other = (opened(tmp_path / str(copies), family, copies=copies) for copies in (False, "other"))
    assert_same(opened(tmp_path / "copies", family), without)
    assert other.bytes_head - without.bytes_head == 2 * 4 * 300 * 64


def resting_memory() -> int:
    gc.collect()
    mx.synchronize()
    mx.clear_cache()
    return int(mx.get_active_memory())


def lose_one(head: dict[str, Stored]) -> str:
    name = next(name for name in sorted(head) if "layernorm" in name or ".norm." in name)
    del head[name]
    return name


def add_one(head: dict[str, Stored]) -> str:
    name = next(name for name in sorted(head) if name.endswith("layernorm.weight"))
    name = name.replace("layernorm.weight", "layernorm.bias")
    head[name] = store(np.zeros(64, np.float32))
    return name


def misshape_one(head: dict[str, Stored]) -> str:
    name = next(name for name in sorted(head) if name.endswith(("down_proj.weight", "down_proj")))
    head[name] = store(np.zeros((64, 48), np.float32))
    return name


def lose_half(head: dict[str, Stored]) -> str:
    names = sorted(head)
    for name in names[::2]:
        del head[name]
    return names[0]


@pytest.mark.parametrize(
    ("family", "spoil"),
    [
        *((family, lose_one) for family in FAMILIES),
        *((family, spoil) for family in FAMILIES[1::6] for spoil in (add_one, misshape_one, lose_half)),
    ],
)
def test_a_head_that_is_not_whole_is_refused_by_name_and_leaves_nothing(
    family: str, spoil: Callable[[dict[str, Stored]], str], tmp_path: Path
) -> None:
    names: list[str] = []
    write_checkpoint(tmp_path, family, edit=lambda head: names.append(spoil(head)))
    before = resting_memory()
    with pytest.raises(FailedPrecondition) as refused:
        load_model(read_pack(tmp_path))
    assert names[0] in str(refused.value)
    del refused
    assert resting_memory() - before <= 1024
