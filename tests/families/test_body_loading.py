"""A body gets exactly its own tensors, whatever lies beside them: a head anywhere, eyes, layers beyond the last."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import DataLoss, FailedPrecondition
from mtplxd.families.load import load_model
from mtplxd.families.load_body import load_body
from mtplxd.packs.headers import read_headers
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx, tree
from support.bodies import CANNOT_GO_BACK, OTHERS, stock_model, write_body
from support.families import FAMILIES, TINY, write_checkpoint

Changes = Callable[[dict[str, mx.array]], None]


def values(model: object) -> dict[str, np.ndarray]:
    found = tree.tree_flatten(model.parameters())  # type: ignore[attr-defined]
    return {name: np.array(array.astype(mx.float32)) for name, array in found}


def body_of(folder: Path) -> dict[str, np.ndarray]:
    """The tensors a class ends up with, by its own names."""
    return values(load_body(read_pack(folder)))


def stock_body(folder: Path, family: str) -> dict[str, np.ndarray]:
    """The same body without a head, as mlx-lm saved it and loads it by itself."""
    return values(stock_model(write_checkpoint(folder / "stock", family, head=False, body="mlx")))


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name


def add(folder: Path, extra: dict[str, tuple[int, ...]], file: str = "model.safetensors") -> None:
    """Puts more tensors into a file of the folder, a new one where there is none of that name."""
    path = folder / file
    tensors = mx.load(str(path)) if path.exists() else {}
    tensors |= {name: mx.full(shape, 0.5, mx.bfloat16) for name, shape in extra.items()}
    mx.eval(*tensors.values())
    mx.save_safetensors(str(path), tensors, {"format": "pt"})


@pytest.mark.parametrize("place", ["single", "last_shard", "mtp.safetensors", "model-mtp.safetensors"])
@pytest.mark.parametrize("stored", ["hf", "mlx"])
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "gemma4"])
def test_a_body_is_the_same_with_a_head_beside_it_in_either_format(
    tmp_path: Path, family: str, stored: str, place: str
) -> None:
    folder = write_checkpoint(tmp_path / "pack", family, body=stored, place=place)  # type: ignore[arg-type]
    assert_same(body_of(folder), stock_body(tmp_path, family))


@pytest.mark.parametrize("stored", ["hf", "mlx"])
@pytest.mark.parametrize("wrap", ["language_model.", "model.language_model."])
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe"])
def test_norms_of_qwen_come_out_right_under_every_wrap(
    tmp_path: Path, family: str, wrap: str, stored: str
) -> None:
    folder = write_checkpoint(tmp_path / "pack", family, body=stored, wrap=wrap)  # type: ignore[arg-type]
    assert_same(body_of(folder), stock_body(tmp_path, family))


@pytest.mark.parametrize("stored", ["hf", "mlx"])
@pytest.mark.parametrize("family", ["kimi_k2", "minimax_m2", "gemma4"])
def test_bodies_without_a_head_of_their_own_load_in_either_format(
    tmp_path: Path, family: str, stored: str
) -> None:
    folder = write_checkpoint(tmp_path / "pack", family, head=False, body=stored, place="single")  # type: ignore[arg-type]
    assert_same(body_of(folder), stock_body(tmp_path, family))


APPENDED = {"model.layers.2.enorm.weight": (64,), "model.layers.2.eh_proj.weight": (64, 128)}
STRAY: list[tuple[str, dict[str, tuple[int, ...]]]] = [
    ("kimi_k2", APPENDED),
    ("minimax_m2", {"model.layers.2.enorm.weight": (64,)}),
    ("minimax_m2", {"model.mtp_modules.0.enorm.weight": (64,)}),
    ("gemma4", {"mtp.x.weight": (64,)}),
    ("exaone_moe", {"mtp.fc.weight": (64, 128), "mtp.norm.weight": (64,)}),
    ("kimi_k3", {"language_model.model.layers.2.enorm.weight": (64,)}),
    ("qwen3_next", {"mtp.fc.weight": (64, 128)}),
    ("mistral3", {"vision_tower.patch_conv.weight": (8, 8), "multi_modal_projector.norm.weight": (8,)}),
    ("qwen3_5", {"vision_tower.blocks.0.weight": (8, 8), "model.visual.merger.weight": (8, 8)}),
    ("glm4_moe", {"vision_tower.blocks.0.weight": (8, 8)}),
]


@pytest.mark.parametrize(("family", "extra"), STRAY, ids=[f"{name}-{next(iter(e))}" for name, e in STRAY])
def test_what_is_no_part_of_the_body_is_not_given_to_its_class(
    tmp_path: Path, family: str, extra: dict[str, tuple[int, ...]]
) -> None:
    write = write_body if family in OTHERS else None
    folder = (
        write(tmp_path / "pack", OTHERS[family])
        if write
        else write_checkpoint(tmp_path / "pack", family, head=False, body="mlx", place="single")
    )
    expected = body_of(folder)
    add(folder, extra)
    assert_same(body_of(folder), expected)


@pytest.mark.parametrize("family", ["glm4_moe", "deepseek_v3", "glm4_moe_lite"])
def test_a_second_appended_layer_is_left_out_too(tmp_path: Path, family: str) -> None:
    folder = write_checkpoint(tmp_path / "pack", family, place="single")
    layers = TINY[family]["num_hidden_layers"]
    tensors = read_headers(folder / "model.safetensors")
    second = {
        name.replace(f"layers.{layers}.", f"layers.{layers + 1}."): info.shape
        for name, info in tensors.items()
        if f"layers.{layers}." in name
    }
    add(folder, second)
    assert_same(body_of(folder), stock_body(tmp_path, family))


def test_a_body_deeper_than_61_layers_keeps_its_layer_61(tmp_path: Path) -> None:
    config = {
        "num_hidden_layers": 63,
        "hidden_size": 32,
        "intermediate_size": 32,
        "moe_intermediate_size": 16,
    }
    folder = write_checkpoint(tmp_path / "pack", "deepseek_v3", place="single", config=config)
    found = body_of(folder)
    own = {name for name in found if ".layers.61." in name}
    assert own
    assert {name.replace("layers.61.", "layers.60.") for name in own} == {
        name for name in found if ".layers.60." in name
    }
    plain = load_model(read_pack(folder), plain=True)
    assert plain.target.layers == 63  # type: ignore[attr-defined]


@pytest.mark.parametrize("file", ["weights.safetensors", "pytorch_model.safetensors"])
def test_a_single_file_of_another_name_is_read(tmp_path: Path, file: str) -> None:
    folder = write_checkpoint(tmp_path / "pack", "qwen3_next", place="single")
    (folder / "model.safetensors").rename(folder / file)
    assert_same(body_of(folder), stock_body(tmp_path, "qwen3_next"))


def test_shards_of_any_name_in_an_index_are_read_and_files_outside_it_are_not(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "pack", "mimo", place="last_shard")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    moved = {file: f"part{n}.safetensors" for n, file in enumerate(sorted(set(index["weight_map"].values())))}
    for file, name in moved.items():
        (folder / file).rename(folder / name)
    index["weight_map"] = {name: moved[file] for name, file in index["weight_map"].items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    add(folder, {"model.layers.0.input_layernorm.weight": (64,)}, "model-other.safetensors")
    assert_same(body_of(folder), stock_body(tmp_path, "mimo"))


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_next", "mimo_v2_flash"])
def test_fp8_blocks_become_numbers(tmp_path: Path, family: str) -> None:
    folder = write_checkpoint(tmp_path / "pack", family, fp8=True)
    found, expected = body_of(folder), stock_body(tmp_path, family)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= 0.08 * np.abs(value).max(), name


def test_fp8_blocks_of_a_class_that_knows_none_become_numbers(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "pack", "mimo", head=False, place="single")
    name = "model.layers.0.mlp.up_proj.weight"
    path, whole = folder / "model.safetensors", body_of(folder)
    tensors = mx.load(str(path))
    mx.eval(*tensors.values())
    blocks = mx.full((2, 1), 0.25, mx.float32)
    tensors |= {name: mx.to_fp8(tensors[name] * 4), f"{name}_scale_inv": blocks}
    mx.save_safetensors(str(path), tensors, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": fp8}))
    found = body_of(folder)[name]
    assert np.abs(found - whole[name]).max() <= 0.07 * np.abs(whole[name]).max()


def test_a_kind_of_cache_without_a_counterpart_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match="ChunkedKVCache"):
        load_model(read_pack(write_body(tmp_path / "pack", CANNOT_GO_BACK)))


@pytest.mark.parametrize(("missing", "extra"), [(True, False), (False, True), (True, True)])
def test_tensors_that_are_missing_or_left_over_are_named(tmp_path: Path, missing: bool, extra: bool) -> None:
    folder = write_checkpoint(tmp_path / "pack", "mimo", head=False, place="single")
    path = folder / "model.safetensors"
    tensors = mx.load(str(path))
    mx.eval(*tensors.values())
    if missing:
        del tensors["model.norm.weight"]
    if extra:
        tensors["model.layers.1.self_attn.q_extra.weight"] = mx.zeros((4,))
    mx.save_safetensors(str(path), tensors, {"format": "pt"})
    with pytest.raises(DataLoss) as refused:
        load_model(read_pack(folder))
    text = str(refused.value)
    assert ("missing model.norm.weight" in text) == missing
    assert ("unused model.layers.1.self_attn.q_extra.weight" in text) == extra


def test_a_tensor_of_another_shape_is_damage(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "pack", "mimo", head=False, place="single")
    add(folder, {"model.norm.weight": (32,)})
    with pytest.raises(DataLoss, match="cannot load the body"):
        load_model(read_pack(folder))


@pytest.mark.parametrize("dtype", [mx.uint8, mx.int32, mx.bool_])
def test_a_body_whose_weights_are_no_floats_is_refused_by_their_name(tmp_path: Path, dtype: object) -> None:
    """FP8 without its scales reads as bytes, of the right shape."""
    folder = write_checkpoint(tmp_path / "pack", "deepseek_v3", place="single")
    tensors = mx.load(str(folder / "model.safetensors"))
    tensors["model.layers.0.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"].astype(dtype)
    mx.eval(*tensors.values())
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "pt"})
    with pytest.raises(DataLoss, match=r"no floats model\.layers\.0\.mlp\.up_proj\.weight"):
        load_model(read_pack(folder), plain=True)


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("deepseek_v3", "num_experts_per_tok", 99),
        ("deepseek_v3", "routed_scaling_factor", "2"),
        ("deepseek_v3", "n_group", 3),
        ("glm4_moe", "partial_rotary_factor", 0),
    ],
)
def test_a_config_that_fails_its_class_only_when_it_computes_is_the_packs_fault(
    tmp_path: Path, family: str, field: str, value: object
) -> None:
    folder = write_checkpoint(tmp_path / "pack", family, config={field: value})
    with pytest.raises(DataLoss, match="cannot"):
        load_model(read_pack(folder))


def test_a_head_whose_config_makes_no_module_is_the_packs_fault(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "pack", "gemma4")
    file = folder / "assistant" / "config.json"
    config = json.loads(file.read_text())
    config["text_config"]["rms_norm_eps"] = "small"
    file.write_text(json.dumps(config))
    with pytest.raises(DataLoss, match="the head cannot be built as its config says"):
        load_model(read_pack(folder))
    assert load_model(read_pack(folder), plain=True).head is None
