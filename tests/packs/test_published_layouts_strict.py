"""A published head binds strictly both ways: what is missing, left over, misshapen or void is named by its key."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import DataLoss, FailedPrecondition
from mtplxd.packs.binding import check_head, differing_copies
from mtplxd.packs.detector import detect_head
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.tiers import judge
from support.published_configs import DEEPSEEK, GEMMA_ASSISTANT, NEMOTRON, QWEN, QWEN_MOE
from support.published_keys import (
    RELEASES,
    Release,
    appended,
    body_keys,
    dtype_of,
    gemma_assistant,
    qwen,
    release,
    write_release,
    write_sparse,
)

ZOO = Path(__file__).parents[1] / "data" / "zoo"
each_release = pytest.mark.parametrize("one", RELEASES, ids=lambda one: one.name)


def spread(keys: Any, count: int = 7) -> list[str]:
    """Some of the names from all over the list, the first and the last among them."""
    names = sorted(keys)
    return sorted({names[round(at * (len(names) - 1) / (count - 1))] for at in range(count)})


def pack_of(folder: Path, one: Release, keys: dict[str, tuple[int, ...]]) -> Pack:
    shutil.rmtree(folder, ignore_errors=True)
    dtypes = {name: dtype_of(name, one.keys) for name in one.keys}
    return read_pack(write_release(folder, one.config, keys, dtypes=dtypes))


@each_release
def test_every_kind_of_missing_tensor_is_named(one: Release, tmp_path: Path) -> None:
    kinds = {re.sub(r"experts\.\d+\.", "experts.0.", name): name for name in one.keys}
    for name in kinds.values():
        keys = {key: shape for key, shape in one.keys.items() if key != name}
        report = detect_head(pack_of(tmp_path / "pack", one, keys))
        copy = name.endswith(("embed_tokens.weight", "shared_head.head.weight")) and one.layout == "appended"
        assert report.present
        assert report.missing == (() if copy else (name,)), name
        assert report.extra == ()


@each_release
def test_tensors_nobody_uses_are_named(one: Release, tmp_path: Path) -> None:
    stem = spread(one.keys)[3].rsplit(".", 1)[0]
    report = detect_head(pack_of(tmp_path / "pack", one, {**one.keys, f"{stem}.stray": (3,)}))
    assert (report.extra, report.missing) == ((f"{stem}.stray",), ())


@each_release
def test_tensors_that_look_like_another_head_are_named_too(one: Release, tmp_path: Path) -> None:
    stray = "model.mtp.layers.9.stray.weight"
    report = detect_head(pack_of(tmp_path / "pack", one, {**one.keys, stray: (3,)}))
    assert stray in report.extra
    assert judge(read_pack(tmp_path / "pack"))[0] == "incompatible"


@each_release
def test_every_wrong_shape_is_named(one: Release, tmp_path: Path) -> None:
    for name in spread(one.keys):
        keys = {**one.keys, name: (1, *reversed(one.keys[name]))}
        report = detect_head(pack_of(tmp_path / "pack", one, keys))
        assert [text.split()[0] for text in report.misshapen] == [name]
        assert judge(read_pack(tmp_path / "pack"))[0] == "incompatible"


@each_release
def test_half_a_head_is_a_head_with_tensors_missing(one: Release, tmp_path: Path) -> None:
    names = sorted(one.keys)
    for kept in (names[::2], names[1::2], names[: len(names) // 2], names[len(names) // 2 :]):
        pack = pack_of(tmp_path / "pack", one, {name: one.keys[name] for name in kept})
        report = detect_head(pack)
        if one.layout == "assistant" and not {"pre_projection.weight", "post_projection.weight"} <= set(kept):
            assert report.problems
            continue
        assert report.present
        assert report.missing
        assert not set(report.missing) & set(kept)
        with pytest.raises(FailedPrecondition, match="missing"):
            check_head(pack)


@each_release
def test_a_head_of_another_hidden_size_is_refused_by_key(one: Release, tmp_path: Path) -> None:
    config = dict(one.config)
    text = dict(config.get("text_config", config))
    text["hidden_size"] += 128
    config = {**config, "text_config": text} if "text_config" in config else text
    report = detect_head(read_pack(write_release(tmp_path / "pack", config, one.keys)))
    assert report.misshapen
    assert {text.split()[0] for text in report.misshapen} <= one.keys.keys()


@pytest.mark.parametrize("name", ["DeepSeek-V3.1", "GLM-4.5", "Step-3.5-Flash", "LongCat-Flash"])
def test_a_head_of_another_vocabulary_is_refused_by_key(name: str, tmp_path: Path) -> None:
    one = release(name)
    config = {**one.config, "vocab_size": one.config["vocab_size"] + 64}
    report = detect_head(read_pack(write_release(tmp_path / "pack", config, one.keys)))
    assert report.misshapen
    assert all("embed_tokens" in text or "shared_head" in text for text in report.misshapen)


def loadable(folder: Path, one: Release) -> Pack:
    """The release as a pack, an assistant in a pair with its target."""
    if one.layout != "assistant":
        return read_pack(write_release(folder, one.config, one.keys))
    return write_pair(folder, one, gemma_body(one.config["backbone_hidden_size"]))


def write_pair(folder: Path, one: Release, target: dict[str, Any]) -> Pack:
    write_release(folder / "target", target, {})
    write_release(folder / "assistant", one.config, one.keys)
    (folder / "mtplx_pair.json").write_text("{}")
    return read_pack(folder)


def fill(pack: Pack, bits: int, only: str = "") -> None:
    """Writes one bfloat16 into every element of the head's norms, and an ordering where one is wanted."""
    for name, (file, info) in pack.head_tensors.items():
        with file.open("r+b") as stream:
            stream.seek(info.begin)
            if name.endswith("token_ordering"):
                stream.write(np.arange(info.size, dtype="<i8")[::-1].tobytes())
            elif "norm" in name and info.dtype == "BF16" and len(info.shape) == 1 and only in name:
                stream.write(np.full(info.size, bits, "<u2").tobytes())


@each_release
def test_norms_of_zeros_or_not_finite_are_refused_by_key(one: Release, tmp_path: Path) -> None:
    pack = loadable(tmp_path / "pack", one)
    with pytest.raises(FailedPrecondition, match="is all zero"):
        check_head(pack)
    fill(pack, 0x3F80)
    assert check_head(read_pack(pack.path)).problems == ()
    norms = [name for name in one.keys if "norm" in name and name.endswith(".weight")]
    for name in spread(norms, 4):
        fill(pack, 0x3F80)
        fill(pack, 0x7FC0, only=name)
        with pytest.raises(FailedPrecondition, match=re.escape(f"{name} is not finite")):
            check_head(pack)


def test_one_element_that_is_not_finite_is_enough(tmp_path: Path) -> None:
    pack = loadable(tmp_path / "pack", release("MiMo-7B"))
    fill(pack, 0x3F80)
    name = "model.mtp_layers.0.final_layernorm.weight"
    file, info = pack.head_tensors[name]
    with file.open("r+b") as stream:
        stream.seek(info.begin + 100)
        stream.write(b"\x80\x7f")
    with pytest.raises(FailedPrecondition, match=re.escape(f"{name} is not finite")):
        check_head(pack)


def test_an_ordering_that_repeats_token_ids_is_refused(tmp_path: Path) -> None:
    one = release("Gemma 4 E2B assistant")
    pack = loadable(tmp_path / "pack", one)
    fill(pack, 0x3F80)
    file, info = pack.head_tensors["masked_embedding.token_ordering"]
    with file.open("r+b") as stream:
        stream.seek(info.begin)
        stream.write(bytes(8))
    with pytest.raises(FailedPrecondition, match=r"token_ordering is not an ordering"):
        check_head(pack)


def test_fp8_without_its_scale_and_a_scale_without_fp8_are_both_named(tmp_path: Path) -> None:
    one = release("LongCat-Flash fp8")
    name = "model.mtp.layers.0.eh_proj.weight"
    folder = write_release(tmp_path / "pack", one.config, {}, sidecar="mtp.safetensors")
    dtypes = {key: dtype_of(key, one.keys) for key in one.keys}
    bare = {key: shape for key, shape in one.keys.items() if key != f"{name}_scale_inv"}
    write_sparse(folder / "mtp.safetensors", bare, dtypes)
    assert detect_head(read_pack(folder)).missing == (f"{name}_scale_inv",)
    write_sparse(folder / "mtp.safetensors", one.keys, {**dtypes, name: "BF16"})
    assert detect_head(read_pack(folder)).extra == (f"{name}_scale_inv",)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I32", "U8"])
def test_a_norm_that_is_no_float_is_named(dtype: str, tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", QWEN, {}, sidecar="mtp.safetensors")
    write_sparse(folder / "mtp.safetensors", qwen(QWEN), {"mtp.norm.weight": dtype})
    assert any(f"mtp.norm.weight {dtype}" in text for text in detect_head(read_pack(folder)).problems)


def packed(keys: dict[str, tuple[int, ...]], bits: int, group: int, keep: str) -> tuple[Any, dict[str, str]]:
    """Keys and dtypes as MLX packs them, but for the names that contain `keep`."""
    found, dtypes = {}, {}
    for name, shape in keys.items():
        if len(shape) < 2 or keep in name:
            found[name] = shape
            continue
        base = name.removesuffix(".weight")
        found[name], dtypes[name] = (*shape[:-1], shape[-1] * bits // 32), "U32"
        found |= dict.fromkeys((f"{base}.scales", f"{base}.biases"), (*shape[:-1], shape[-1] // group))
    return found, dtypes


@pytest.mark.parametrize(("bits", "group"), [(4, 64), (8, 32), (6, 64), (3, 128), (5, 64)])
def test_a_head_that_mlx_has_packed_is_whole(bits: int, group: int, tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", QWEN, {}, sidecar="mtp.safetensors")
    keys, dtypes = packed(qwen(QWEN), bits, group, keep="mtp.fc")
    write_sparse(folder / "mtp.safetensors", keys, dtypes)
    assert detect_head(read_pack(folder)).problems == ()
    keys.pop("mtp.layers.0.mlp.up_proj.scales")
    write_sparse(folder / "mtp.safetensors", keys, dtypes)
    assert detect_head(read_pack(folder)).missing == ("mtp.layers.0.mlp.up_proj.scales",)


def test_experts_that_a_converter_stacked_are_whole(tmp_path: Path) -> None:
    at = "mtp.layers.0.mlp."
    keys = {name: shape for name, shape in qwen(QWEN_MOE).items() if ".experts." not in name}
    keys |= dict.fromkeys(
        (f"{at}switch_mlp.gate_proj.weight", f"{at}switch_mlp.up_proj.weight"), (256, 512, 2048)
    )
    keys[f"{at}switch_mlp.down_proj.weight"] = (256, 2048, 512)
    report = detect_head(read_pack(write_release(tmp_path / "pack", QWEN_MOE, keys)))
    assert (report.tensors, report.problems) == (20, ())


def test_a_config_that_declares_a_head_without_tensors_is_worth_a_note(tmp_path: Path) -> None:
    for name, field in [
        ("DeepSeek-V3.1", "num_nextn_predict_layers"),
        ("Qwen3.6 dense", "mtp_num_hidden_layers"),
    ]:
        report = detect_head(read_pack(write_release(tmp_path / name, release(name).config, {})))
        assert (report.present, report.problems) == (False, ())
        assert f"declares a head ({field} 1)" in report.notes[0]


@each_release
def test_a_silent_config_does_not_hide_a_head(one: Release, tmp_path: Path) -> None:
    silent = {key: value for key, value in one.config.items() if key != "num_nextn_predict_layers"}
    if "text_config" in silent:
        silent["text_config"] = {
            k: v for k, v in silent["text_config"].items() if not k.startswith("mtp_num")
        }
    report = detect_head(read_pack(write_release(tmp_path / "pack", silent, one.keys)))
    assert (report.tensors, report.missing, report.extra) == (one.count, (), ())


@pytest.mark.parametrize(
    ("field", "value"),
    [("n_routed_experts", 10**9), ("n_routed_experts", "256"), ("kv_lora_rank", None), ("v_head_dim", -1)],
)
def test_a_config_that_cannot_be_computed_with_is_named_by_field(
    field: str, value: object, tmp_path: Path
) -> None:
    config = {**DEEPSEEK, field: value}
    report = detect_head(read_pack(write_release(tmp_path / "pack", config, appended(DEEPSEEK))))
    assert report.present
    assert any(field in text for text in report.faults)


@pytest.mark.parametrize(
    ("model_type", "key", "said"),
    [
        ("qwen4_exp", "mtp.fc_embedding.weight", "residual streams"),
        ("deepseek_v4", "mtp.0.e_proj.weight", "residual streams"),
        ("deepseek_v41", "mtp.0.proj.weight", "DSpark stages"),
        ("minimax_m3_vl", "model.mtp.layers.0.transformer_layer.input_layernorm.weight", "minimax_m3"),
        ("exaone_moe", "mtp.fc.weight", "exaone"),
        ("hy_v3", "model.layers.61.eh_proj.weight", "hunyuan_v3"),
        ("gemma4", "mtp.x.weight", "Gemma 4 assistant"),
        ("a_new_model", "mtp.fc.weight", "a_new_model"),
        ("a_new_model", "mtp.0.thing", "a_new_model"),
        ("a_new_model", "model.mtp_modules.0.enorm.weight", "a_new_model"),
        ("llama", "mtp.fc.weight", "llama"),
    ],
)
def test_a_head_no_module_drives_is_named_and_refused(
    model_type: str, key: str, said: str, tmp_path: Path
) -> None:
    config = {**DEEPSEEK, "model_type": model_type}
    pack = read_pack(write_release(tmp_path / "pack", config, {key: (8, 8), f"{key}.more": (8,)}))
    report = detect_head(pack)
    assert report.present
    assert said in " ".join(report.problems)
    assert judge(pack)[0] == "incompatible"
    assert pack.body_tensors.keys() == body_keys(config).keys()
    with pytest.raises(FailedPrecondition, match="--plain"):
        check_head(pack)


@pytest.mark.parametrize("model_type", ["llama", "deepseek_v2", "a_new_model"])
def test_an_ordinary_body_has_no_head(model_type: str, tmp_path: Path) -> None:
    config = {**DEEPSEEK, "model_type": model_type, "num_nextn_predict_layers": 0}
    names = [f"model.layers.{n}.mlp.gate_proj.weight" for n in range(61)] + ["model.visual.layers.99.weight"]
    pack = read_pack(write_release(tmp_path / "pack", config, dict.fromkeys(names, (4, 4))))
    report = detect_head(pack)
    assert (report.present, report.notes, pack.bytes_head) == (False, (), 0)


def gemma_body(hidden: int = 1536) -> dict[str, Any]:
    text = {**GEMMA_ASSISTANT["text_config"], "hidden_size": hidden, "num_hidden_layers": 30}
    return {"model_type": "gemma4", "text_config": text}


def test_assistant_tensors_under_mtp_in_a_gemma_checkpoint_are_an_assistant(tmp_path: Path) -> None:
    keys = {f"mtp.{name}": shape for name, shape in gemma_assistant(GEMMA_ASSISTANT).items()}
    pack = read_pack(write_release(tmp_path / "pack", gemma_body(), keys))
    report = detect_head(pack)
    assert (report.layout, report.prefix, report.tensors, report.problems) == ("assistant", "mtp.", 50, ())
    keys["mtp.pre_projection.weight"] = (256, 2 * 1024)
    keys["mtp.post_projection.weight"] = (1024, 256)
    report = detect_head(read_pack(write_release(tmp_path / "other", gemma_body(), keys)))
    names = [text.split()[0] for text in report.misshapen]
    assert names == ["mtp.post_projection.weight", "mtp.pre_projection.weight"]


def test_a_pair_is_the_targets_body_with_the_assistant_as_its_head(tmp_path: Path) -> None:
    one, target = release("Gemma 4 E2B assistant"), gemma_body()
    pack = write_pair(tmp_path / "pair", one, target)
    report = detect_head(pack)
    assert (report.layout, report.tensors, report.problems, report.prefix) == ("assistant", 50, (), "")
    assert report.aliases == {"embed_tokens": "model.embed_tokens.weight"}
    assert (pack.name, pack.family, pack.model_path) == ("pair", "gemma4", tmp_path / "pair" / "target")
    assert pack.body_tensors.keys() == body_keys(target).keys()
    alone = read_pack(tmp_path / "pair" / "assistant")
    assert (pack.bytes_head, alone.bytes_body) == (alone.bytes_head, 0)
    assert judge(pack)[0] == ("unverified" if report.driven else "incompatible")
    assert judge(alone) == ("incompatible", list(detect_head(alone).faults))


@pytest.mark.parametrize(
    ("hidden", "vocab", "said"),
    [(2048, 262144, "backbone_hidden_size is 1536"), (1536, 1000, "vocab_size is 262144, the target's")],
)
def test_an_assistant_of_another_target_is_refused(
    tmp_path: Path, hidden: int, vocab: int, said: str
) -> None:
    target = gemma_body(hidden)
    target["text_config"]["vocab_size"] = vocab
    pack = write_pair(tmp_path / "pair", release("Gemma 4 E2B assistant"), target)
    assert any(said in text for text in detect_head(pack).problems)
    with pytest.raises(FailedPrecondition, match=said):
        check_head(pack)


def test_a_pair_of_two_bodies_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataLoss, match=r"mimo in .*assistant"):
        write_pair(tmp_path / "pair", release("MiMo-7B"), gemma_body())


def test_a_pack_may_raise_the_depth_of_a_single_layer_only(tmp_path: Path) -> None:
    from mtplxd.packs.manifest import Manifest, write_manifest

    for name, expected in [("MiMo-7B", 3), ("Qwen3.6 dense", 8), ("Step-3.5-Flash", 3)]:
        folder = write_release(tmp_path / name, release(name).config, release(name).keys)
        write_manifest(folder, Manifest({"mtp_depth_max": 3 if name == "MiMo-7B" else 5}))
        assert detect_head(read_pack(folder)).depth_max == expected


def test_layers_count_as_they_are_present(tmp_path: Path) -> None:
    one = release("Step-3.5-Flash")
    keys = {name: shape for name, shape in one.keys.items() if ".47." not in name}
    report = detect_head(read_pack(write_release(tmp_path / "two", one.config, keys)))
    assert (report.layers, report.depth_max, report.problems) == (2, 2, ())
    assert report.notes == ("its config declares 3 layers (num_nextn_predict_layers), its files hold 2",)
    keys = {name: shape for name, shape in one.keys.items() if ".46." not in name}
    report = detect_head(read_pack(write_release(tmp_path / "hole", one.config, keys)))
    assert len(report.missing) == 17


def test_a_pattern_of_blocks_no_head_has_is_named(tmp_path: Path) -> None:
    one = release("Nemotron-3-Nano")
    config = {**NEMOTRON, "mtp_hybrid_override_pattern": "M*"}
    report = detect_head(read_pack(write_release(tmp_path / "pack", config, one.keys)))
    assert any("mtp_hybrid_override_pattern" in text for text in report.faults)


@pytest.mark.parametrize(
    ("name", "tensors", "body", "layout"),
    [("qwen3_5", 15, 59, "prefix"), ("mimo", 16, 51, "namespace"), ("glm4_moe_lite", 44, 91, "appended")],
)
def test_trained_checkpoints_have_the_head_that_their_publisher_counts(
    name: str, tensors: int, body: int, layout: str
) -> None:
    pack = read_pack(ZOO / name)
    report = check_head(pack)
    assert (report.tensors, len(pack.body_tensors), report.layout) == (tensors, body, layout)
    assert (report.problems, report.notes) == ((), ())
    assert judge(pack)[0] == ("unverified" if report.driven else "incompatible")


def test_copies_are_compared_byte_for_byte_with_the_bodys_matrices(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ZOO / "glm4_moe_lite", tmp_path / "pack"))
    pack = read_pack(folder)
    report = detect_head(pack)
    names = {"model.layers.3.embed_tokens.weight", "model.layers.3.shared_head.head.weight"}
    assert report.copies.keys() == names
    assert differing_copies(report, pack.body_tensors) == ()
    file, info = pack.head_tensors["model.layers.3.shared_head.head.weight"]
    with file.open("r+b") as stream:
        stream.seek(info.end - 1)
        last = stream.read(1)
        stream.seek(info.end - 1)
        stream.write(bytes([last[0] ^ 1]))
    assert differing_copies(report, pack.body_tensors) == ("model.layers.3.shared_head.head.weight",)
