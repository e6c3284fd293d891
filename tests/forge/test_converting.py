"""A body is stored as it was asked for and as the equations of packing say, whole and read back, or the step fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import Cancelled, DataLoss, InvalidArgument, ResourceExhausted
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.forge import arrays, weights_files
from mtplxd.forge.body_plan import BodyPlan
from mtplxd.forge.converting import convert_body
from mtplxd.packs.fetch import hash_file
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.checkpoint_files import read_tensors, store, write_tensors
from support.families import write_checkpoint
from support.forging import Listener, contents, convert, count_to, never, silent
from support.mlx_packing import nearest_values, unpack_matrix
from support.sidecars import rewrite
from support.zoo import NAMES, ZOO

TOKENS = [61 * place % 256 for place in range(1, 40)]
Q_PROJ = "model.layers.0.self_attn.q_proj"


def logits_of(folder: Path) -> np.ndarray:
    model: LoadedModel = load_model(read_pack(folder), plain=True)
    hidden, _ = model.target.run(mx.array([TOKENS], mx.int32), model.target.make_cache(1))
    return np.array(model.target.logits(hidden)[0].astype(mx.float32))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense body of the zoo, 4 bits."""
    out = tmp_path_factory.mktemp("packed") / "pack"
    convert(ZOO / "mimo", out, bits=4, group_size=32)
    return out


@pytest.mark.parametrize("name", NAMES)
def test_a_body_kept_as_it_is_computes_what_the_source_does(name: str, tmp_path: Path) -> None:
    found = convert(ZOO / name, tmp_path / "pack")
    assert np.array_equal(logits_of(ZOO / name), logits_of(tmp_path / "pack"))
    assert (found.source, found.packing, found.packed, found.lossless) == ("float", {}, 0, True)
    assert found.bits_per_weight == pytest.approx(16, abs=0.02)


def test_its_files_are_those_it_names_by_hash_and_all_that_goes_with_the_weights(tmp_path: Path) -> None:
    found = convert(ZOO / "qwen3_5", tmp_path)
    assert {name: hash_file(tmp_path / name) for name in contents(tmp_path)} == dict(found.files)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / name).read_bytes() == (ZOO / "qwen3_5" / name).read_bytes()
    assert {"README.md", "expected.json"}.isdisjoint(found.files)


def test_what_sees_is_left_out_by_name_and_said(tmp_path: Path) -> None:
    found = convert(ZOO / "qwen3_5", tmp_path)
    stored = read_pack(ZOO / "qwen3_5").body_tensors
    wanted = {name: info.nbytes for name, (_, info) in stored.items() if name.startswith("model.visual.")}
    assert dict(found.left_out) == wanted
    assert len(wanted) == 3
    assert any("3 tensors" in note for note in found.notes)


def test_the_head_is_no_part_of_the_body(tmp_path: Path) -> None:
    for name in NAMES:
        convert(ZOO / name, tmp_path / name)
        assert read_pack(tmp_path / name).head_tensors == {}


def test_running_it_again_gives_the_same_bytes_and_sweeps_other_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as small:
        small.setattr(weights_files, "SHARD_BYTES", 200_000)
        small.setattr(weights_files.split_into_shards, "__defaults__", (200_000,))
        split = convert(ZOO / "mimo", tmp_path)
        assert sum(name.startswith("model-") for name in split.files) > 5
        assert np.array_equal(logits_of(tmp_path), logits_of(ZOO / "mimo"))
    convert(ZOO / "mimo", tmp_path)
    once = contents(tmp_path)
    convert(ZOO / "mimo", tmp_path)
    assert contents(tmp_path) == once
    assert [name for name in once if name.startswith("model-")] == ["model-00001-of-00001.safetensors"]


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_packed_values_are_the_nearest_of_their_groups_steps(bits: int, tmp_path: Path) -> None:
    found = convert(ZOO / "mimo", tmp_path, bits=bits, group_size=32)
    source, stored = read_tensors(ZOO / "mimo"), read_tensors(tmp_path)
    parts = [stored[f"{Q_PROJ}.{part}"] for part in ("weight", "scales", "biases")]
    values, wanted = unpack_matrix(*parts, bits), source[f"{Q_PROJ}.weight"]
    rounding = np.abs(wanted).max() * 2**-7  # scales and biases are bfloat16 themselves
    best = np.abs(nearest_values(wanted, *parts, bits) - wanted)
    assert (np.abs(values - wanted) <= best + rounding).all()
    assert np.abs(values - wanted).max() <= 1.1 * np.abs(parts[1]).max()
    assert np.isfinite(logits_of(tmp_path)).all()
    assert not found.lossless
    assert found.packing["bits"] == bits
    count = sum(source[name].size for name in read_pack(ZOO / "mimo").body_tensors)
    assert found.bits_per_weight == pytest.approx(8 * found.bytes / count, abs=0.001)


def test_more_bits_are_nearer_to_the_source(tmp_path: Path) -> None:
    wanted = logits_of(ZOO / "mimo")
    wrong = []
    for bits in (8, 4, 2):
        convert(ZOO / "mimo", tmp_path / str(bits), bits=bits, group_size=32)
        wrong.append(float(np.abs(logits_of(tmp_path / str(bits)) - wanted).mean()))
    assert 0 < wrong[0] < wrong[1] < wrong[2]


def test_bits_of_single_layers_go_before_those_of_all(tmp_path: Path) -> None:
    plan = BodyPlan(bits=4, group_size=32, overrides={"*.mlp.*": 8, "lm_head": 16})
    found = convert(ZOO / "mimo", tmp_path, plan)
    shapes = {name: info.shape for name, (_, info) in read_pack(tmp_path).body_tensors.items()}
    config = json.loads((ZOO / "mimo" / "config.json").read_text())
    hidden, width = config["hidden_size"], config["intermediate_size"]
    assert shapes["model.layers.0.mlp.down_proj.weight"] == (hidden, width * 8 // 32)
    assert shapes[f"{Q_PROJ}.weight"][-1] == hidden * 4 // 32
    assert shapes["lm_head.weight"] == (config["vocab_size"], hidden)
    assert found.packing["model.layers.0.mlp.down_proj"]["bits"] == 8
    assert np.isfinite(logits_of(tmp_path)).all()


@pytest.mark.parametrize(
    "pattern", ["nothing", "model.layers.9.*", "model.norm", "model.layers.0.mlp.down_proj.weight"]
)
def test_a_pattern_that_fits_no_layer_is_refused(tmp_path: Path, pattern: str) -> None:
    plan = BodyPlan(bits=4, group_size=32, overrides={"lm_head": 8, pattern: 8})
    with pytest.raises(InvalidArgument, match="no layer that can be packed fits") as caught:
        convert(ZOO / "mimo", tmp_path, plan)
    assert (caught.value.value, caught.value.field) == (pattern, "overrides")
    assert list(tmp_path.iterdir()) == []


def test_routers_keep_what_their_class_asks_for(tmp_path: Path) -> None:
    convert(write_checkpoint(tmp_path / "source", "qwen3_5_moe", head=False), tmp_path / "pack", bits=4)
    packing = json.loads((tmp_path / "pack" / "config.json").read_text())["quantization"]
    routers = {path: own["bits"] for path, own in packing.items() if path.endswith("mlp.gate")}
    assert set(routers.values()) == {8}
    assert np.isfinite(logits_of(tmp_path / "pack")).all()


def test_a_packed_source_that_is_as_asked_is_kept_byte_for_byte(packed: Path, tmp_path: Path) -> None:
    for plan in (BodyPlan(), BodyPlan(bits=4, group_size=32)):
        found = convert(packed, tmp_path, plan)
        assert (found.source, found.lossless) == ("packed", True)
        assert 5 < found.bits_per_weight < 5.2
        assert read_pack(tmp_path).body_tensors.keys() == read_pack(packed).body_tensors.keys()
        assert contents(tmp_path) == contents(packed)


@pytest.mark.parametrize("name", ["mimo", "glm4_moe_lite"])
def test_a_packed_source_is_unpacked_for_floats(name: str, tmp_path: Path) -> None:
    convert(ZOO / name, tmp_path / "packed", bits=4, group_size=32)
    found = convert(tmp_path / "packed", tmp_path / "floats", bits=16)
    assert (found.packed, found.packing, found.lossless) == (0, {}, False)
    assert "quantization" not in json.loads((tmp_path / "floats" / "config.json").read_text())
    wrong = np.abs(logits_of(tmp_path / "floats") - logits_of(tmp_path / "packed"))
    assert np.median(wrong) < 0.02  # values round to bfloat16


def test_packing_what_was_packed_says_that_it_lost_twice(packed: Path, tmp_path: Path) -> None:
    found = convert(packed, tmp_path, bits=8, group_size=64)
    assert found.packing["bits"] == 8
    assert any("stays lost" in note for note in found.notes)


def test_fp8_blocks_become_the_numbers_they_stand_for(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "deepseek_v3", fp8=True)
    found = convert(source, tmp_path / "pack")
    name = "model.layers.0.self_attn.o_proj.weight"
    wanted, stored = read_tensors(source)[name], read_tensors(tmp_path / "pack")
    assert np.abs(stored[name] - wanted).max() <= np.abs(wanted).max() * 2**-8
    assert (found.source, found.lossless) == ("fp8", True)
    assert "quantization_config" not in json.loads((tmp_path / "pack" / "config.json").read_text())
    assert np.array_equal(logits_of(tmp_path / "pack"), logits_of(source))


@pytest.mark.parametrize("lost", ["_scale_inv", "weight"])
def test_an_fp8_matrix_without_scales_or_scales_without_one_stop_the_build(lost: str, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "deepseek_v3", head=False, fp8=True)
    end = f"layers.0.self_attn.o_proj.weight{lost if lost != 'weight' else ''}"
    _drop(source, end)
    with pytest.raises(DataLoss, match="o_proj"):
        convert(source, tmp_path / "pack")
    assert not list((tmp_path / "pack").glob("*"))


def _drop(folder: Path, end: str) -> None:
    """Takes a tensor out of whichever file holds it, and out of the index."""
    index = folder / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    name = next(one for one in table["weight_map"] if one.endswith(end))
    file = folder / table["weight_map"].pop(name)
    raw = file.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    header.pop("__metadata__", None)
    kept = {}
    for one, entry in header.items():
        low, high = (begin + at for at in entry["data_offsets"])
        if one != name:
            kept[one] = store(np.zeros(0)).__class__(entry["dtype"], tuple(entry["shape"]), raw[low:high])
    write_tensors(file, kept)
    index.write_text(json.dumps(table))


def test_floats_are_cast_but_those_that_need_their_width(tmp_path: Path) -> None:
    found = convert(ZOO / "qwen3_5", tmp_path / "half", dtype="f16")
    dtypes = {name: info.dtype for name, (_, info) in read_pack(tmp_path / "half").body_tensors.items()}
    assert {name for name, dtype in dtypes.items() if dtype == "F32"} == {
        n for n in dtypes if n.endswith("A_log")
    }
    assert set(dtypes.values()) == {"F16", "F32"}
    assert not found.lossless
    assert json.loads((tmp_path / "half" / "config.json").read_text())["text_config"]["dtype"] == "float16"
    assert convert(ZOO / "qwen3_5", tmp_path / "wide", dtype="f32").lossless


def test_the_config_says_nothing_of_where_it_once_lay(tmp_path: Path) -> None:
    source = shutil.copytree(ZOO / "mimo", tmp_path / "source")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "_name_or_path": "/home/someone/mimo"}))
    convert(source, tmp_path / "pack")
    assert b"/home/someone" not in b"".join(contents(tmp_path / "pack").values())


def test_code_in_the_source_is_not_carried(tmp_path: Path) -> None:
    source = shutil.copytree(ZOO / "mimo", tmp_path / "source")
    (source / "modeling_mimo.py").write_text("raise SystemExit('remote code ran')")
    (source / "LICENSE").write_text("do as you like")
    found = convert(source, tmp_path / "pack")
    assert "modeling_mimo.py" not in found.files
    assert (tmp_path / "pack" / "LICENSE").read_text() == "do as you like"


def test_progress_counts_every_byte_once(tmp_path: Path) -> None:
    listener = Listener()
    found = convert_body(ZOO / "mimo", tmp_path, BodyPlan(), listener.tell, never)
    done = [words[1] for words in listener.told]
    assert done == sorted(done)
    assert done[-1] == listener.told[-1][2] == found.bytes


@pytest.mark.parametrize("calls", [0, 1, 30, 51])
def test_cancelled_at_any_time_it_leaves_no_half_file(calls: int, tmp_path: Path) -> None:
    with pytest.raises(Cancelled):
        convert_body(ZOO / "mimo", tmp_path, BodyPlan(), silent, count_to(calls))
    assert not [name for name in contents(tmp_path) if "partial" in name or "tmp" in name]
    assert not (tmp_path / "config.json").exists()


def test_a_disk_that_gives_back_other_bytes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flip(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)

    monkeypatch.setattr(arrays, "sync_file", flip)
    with pytest.raises(DataLoss, match="other bytes"):
        convert(ZOO / "mimo", tmp_path)
    assert contents(tmp_path) == {}


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrays, "write_tensors", full)
    with pytest.raises(ResourceExhausted):
        convert(ZOO / "mimo", tmp_path)
    assert contents(tmp_path) == {}


def test_without_memory_for_its_largest_layer_it_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(ResourceExhausted, match="largest layer"):
        convert(ZOO / "mimo", tmp_path, memory=100_000)
    assert contents(tmp_path) == {}
    convert(ZOO / "mimo", tmp_path, memory=1_000_000)


def test_never_more_than_a_part_of_the_body_is_in_memory(tmp_path: Path) -> None:
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    found = convert(ZOO / "glm4_moe_lite", tmp_path, dtype="f32")
    assert mx.get_peak_memory() - before < found.bytes / 2


@pytest.mark.parametrize(
    "asked",
    [{"bits": 7}, {"bits": 0}, {"group_size": 48}, {"dtype": "fp8"}, {"overrides": {"*": 4}}, 
     {"bits": 4, "overrides": {"*": 1}}],
)  # fmt: skip
def test_a_plan_of_values_that_do_not_exist_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        BodyPlan(**asked)  # type: ignore[arg-type]
    assert refusal.value.fix


def test_a_body_with_a_tensor_too_many_is_refused(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "mimo", head=False, place="single")
    rewrite(
        source, lambda tensors: tensors.update({"model.extra.weight": mx.zeros((2, 2))}), "model.safetensors"
    )
    with pytest.raises(DataLoss, match=r"model\.extra"):
        convert(source, tmp_path / "pack")
