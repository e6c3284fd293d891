"""One detector says whether there is a head; binding is strict both ways; tiers follow from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import DataLoss, FailedPrecondition
from mtplxd.packs.binding import check_head
from mtplxd.packs.detector import TRAINED, detect_head
from mtplxd.packs.headers import read_headers, read_metadata, write_tensors
from mtplxd.packs.inspection import Room, document, inspect_pack
from mtplxd.packs.manifest import Manifest, write_manifest
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.tiers import check_format, judge
from support.tiny_pack import make_tiny_pack

Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]
Edit = Callable[[Tensors, dict[str, str]], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_pack(tmp_path / "tiny")


def edit_head(folder: Path, edit: Edit) -> Pack:
    """Rewrites the sidecar after `edit` changed its tensors or metadata in place."""
    file = folder / "mtp.safetensors"
    data, metadata = file.read_bytes(), read_metadata(file)
    tensors: Tensors = {
        name: (info.dtype, info.shape, data[info.begin : info.end])
        for name, info in read_headers(file).items()
    }
    edit(tensors, metadata)
    layout = {name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()}
    write_tensors(file, layout, ((name, tensor[2]) for name, tensor in tensors.items()), metadata)
    return read_pack(folder)


def test_complete_adapter_is_reported_in_full(folder: Path) -> None:
    report = detect_head(read_pack(folder))
    assert (report.present, report.layout, report.prefix, report.layers) == (True, "adapter", "mtp.", 1)
    assert (report.depth_max, report.problems, report.file) == (8, (), folder / "mtp.safetensors")
    assert report.tensors == len(read_headers(folder / "mtp.safetensors"))
    assert report.aliases == {
        "embed_tokens": "model.embed_tokens.weight",
        "lm_head": "model.embed_tokens.weight",
    }
    assert check_head(read_pack(folder)) == report
    assert judge(read_pack(folder))[0] == "unverified"


def test_config_that_declares_a_head_does_not_make_one(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny", head=False)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))
    pack = read_pack(folder)
    assert not detect_head(pack).present
    assert not check_head(pack).present
    assert judge(pack)[0] == "no-mtp-head"


def test_every_missing_tensor_is_noticed(folder: Path) -> None:
    names = sorted(read_headers(folder / "mtp.safetensors"))
    original = (folder / "mtp.safetensors").read_bytes()
    for name in names:
        (folder / "mtp.safetensors").write_bytes(original)
        pack = edit_head(folder, lambda tensors, _, name=name: tensors.__delitem__(name))  # type: ignore[misc]
        missing = () if name == "mtp.draft_vocab" else (name,)
        assert detect_head(pack).missing == missing
        assert judge(pack)[0] == ("incompatible" if missing else "unverified")


@pytest.mark.parametrize(("origin", "trained"), [("trained", True), ("shipped", False), (None, False)])
def test_a_head_that_was_trained_here_says_so_wherever_it_shows(
    folder: Path, origin: str | None, trained: bool
) -> None:
    said = {} if origin is None else {"origin": origin}
    pack = edit_head(folder, lambda _, metadata: metadata.update(said))
    found = inspect_pack(pack, "tiny", Room(1 << 33, None, False))
    assert found.head.trained is document(found)["head"]["trained"] is trained
    assert any(TRAINED in note for note in found.notes) is trained
    assert TRAINED == "trained, not shipped"


def test_tensor_nobody_uses_is_named(folder: Path) -> None:
    pack = edit_head(folder, lambda tensors, _: tensors.update({"mtp.stray": ("F32", (1,), bytes(4))}))
    assert detect_head(pack).extra == ("mtp.stray",)
    with pytest.raises(FailedPrecondition, match=r"unused: mtp\.stray"):
        check_head(pack)


@pytest.mark.parametrize(
    "name",
    [
        "mtp.fc.weight",
        "mtp.layers.0.self_attn.k_proj.weight",
        "mtp.layers.0.mlp.down_proj.weight",
        "mtp.absent.0",
    ],
)
def test_wrong_shape_of_equal_size_is_named(folder: Path, name: str) -> None:
    def reshape(tensors: Tensors, _: dict[str, str]) -> None:
        dtype, shape, data = tensors[name]
        tensors[name] = (dtype, (1, *reversed(shape)), data)

    pack = edit_head(folder, reshape)
    assert [text.split()[0] for text in detect_head(pack).misshapen] == [name]
    with pytest.raises(FailedPrecondition, match="wrong shape"):
        check_head(pack)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("taps", "2,2", "taps"),
        ("taps", "4,2", "taps"),
        ("taps", "0,4", "taps"),
        ("taps", "1,3", "taps"),
        ("taps", "x", "taps"),
        ("format", "2", "format is 2"),
        ("recursion", "pre", "recursion"),
        ("concat", "hidden_first", "concat"),
        ("depth_max", "0", "depth_max"),
    ],
)
def test_metadata_this_build_cannot_follow_is_refused(folder: Path, key: str, value: str, said: str) -> None:
    pack = edit_head(folder, lambda _, metadata: metadata.update({key: value}))
    tier, reasons = judge(pack)
    assert tier == "incompatible"
    assert any(said in reason for reason in reasons)
    with pytest.raises(FailedPrecondition, match=said):
        check_head(pack)


def test_depth_is_the_sidecars_and_else_eight(folder: Path) -> None:
    assert detect_head(edit_head(folder, lambda _, metadata: metadata.update(depth_max="3"))).depth_max == 3
    assert detect_head(edit_head(folder, lambda _, metadata: metadata.pop("depth_max"))).depth_max == 8


def test_unknown_layout_is_present_but_does_not_bind(folder: Path) -> None:
    def rename(tensors: Tensors, metadata: dict[str, str]) -> None:
        metadata.clear()
        for name in list(tensors):
            tensors[f"new.{name}"] = tensors.pop(name)

    pack = edit_head(folder, rename)
    report = detect_head(pack)
    assert (report.present, report.layout, report.tensors) == (True, "unknown", len(report.extra))
    assert judge(pack)[0] == "incompatible"
    with pytest.raises(FailedPrecondition, match="layout"):
        check_head(pack)


def test_head_of_an_equally_shaped_body_is_refused(tmp_path: Path, folder: Path) -> None:
    other = make_tiny_pack(tmp_path / "other", seed=1)
    (folder / "mtp.safetensors").write_bytes((other / "mtp.safetensors").read_bytes())
    with pytest.raises(FailedPrecondition, match="another body"):
        check_head(read_pack(folder))


def test_head_of_another_body_shows_in_the_tier_where_the_pack_records_its_own(folder: Path) -> None:
    write_manifest(folder, Manifest({"mtplxd": {"format": 1, "fingerprint": {"body": "sha256:other"}}}))
    tier, reasons = judge(read_pack(folder))
    assert (tier, reasons) == ("incompatible", ["it was trained for another body"])


def test_head_that_names_no_body_is_refused(folder: Path) -> None:
    with pytest.raises(FailedPrecondition, match="which body"):
        check_head(edit_head(folder, lambda _, metadata: metadata.pop("body_fingerprint")))


@pytest.mark.parametrize(
    ("bits", "said"), [(0, "all zero"), (0x8000, "all zero"), (0x7FC0, "not finite"), (0xFF80, "finite")]
)
def test_norms_that_cannot_be_used_are_refused(folder: Path, bits: int, said: str) -> None:
    def spoil(tensors: Tensors, _: dict[str, str]) -> None:
        dtype, shape, _data = tensors["mtp.enorm.weight"]
        tensors["mtp.enorm.weight"] = (dtype, shape, np.full(shape, bits, "<u2").tobytes())

    with pytest.raises(FailedPrecondition, match=said):
        check_head(edit_head(folder, spoil))


@pytest.mark.parametrize("ids", [[3, 2], [1, 1], [-1, 4], [5, 300]])
def test_draft_vocabulary_must_be_rising_token_ids(folder: Path, ids: list[int]) -> None:
    def spoil(tensors: Tensors, _: dict[str, str]) -> None:
        tensors["mtp.draft_vocab"] = ("I32", (len(ids),), np.array(ids, "<i4").tobytes())

    with pytest.raises(FailedPrecondition, match="draft_vocab"):
        check_head(edit_head(folder, spoil))


def test_another_family_does_not_take_an_adapter(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "gpt_oss"}))
    tier, reasons = judge(read_pack(folder))
    assert tier == "incompatible"
    assert "gpt_oss" in reasons[0]


def test_damaged_sidecar_is_named(folder: Path) -> None:
    (folder / "mtp.safetensors").write_bytes(b"short")
    with pytest.raises(DataLoss, match=r"mtp\.safetensors"):
        read_pack(folder)


def test_pack_made_for_a_newer_engine_is_refused_with_both_versions(folder: Path) -> None:
    write_manifest(folder, Manifest({"mtplxd": {"format": 9}}))
    pack = read_pack(folder)
    assert judge(pack)[0] == "incompatible"
    with pytest.raises(FailedPrecondition, match=r"format is 9, this build reads up to 1"):
        check_format(pack)


@pytest.mark.parametrize("name", ["mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight", "mtp.norm.weight"])
@pytest.mark.parametrize("dtype", ["I16", "U16"])
def test_weights_that_are_no_floats_are_refused(folder: Path, name: str, dtype: str) -> None:
    def retype(tensors: Tensors, _: dict[str, str]) -> None:
        _, shape, data = tensors[name]
        tensors[name] = (dtype, shape, data)

    pack = edit_head(folder, retype)
    assert judge(pack) == ("incompatible", [f"not F32, F16, BF16: {name} {dtype}"])
    with pytest.raises(FailedPrecondition, match=dtype):
        check_head(pack)


def test_metadata_that_names_another_layout_than_the_tensors_is_refused_with_both(folder: Path) -> None:
    pack = edit_head(folder, lambda _, metadata: metadata.update(layout="namespace"))
    tier, reasons = judge(pack)
    assert tier == "incompatible"
    assert reasons == ["its metadata names the layout namespace, its tensors show adapter"]


def test_tensors_that_show_nothing_of_the_named_layout_are_refused_with_both(folder: Path) -> None:
    def rename(tensors: Tensors, _: dict[str, str]) -> None:
        for name in list(tensors):
            tensors[f"x.{name}"] = tensors.pop(name)

    tier, reasons = judge(edit_head(folder, rename))
    assert tier == "incompatible"
    assert "its metadata names the layout adapter, its tensors show none of mtp.*" in reasons


def test_a_layout_that_only_the_tensors_show_is_said_in_the_verdict(folder: Path) -> None:
    pack = edit_head(folder, lambda _, metadata: metadata.pop("layout"))
    tier, reasons = judge(pack)
    assert tier == "unverified"
    assert "its file names no layout, its tensors show adapter" in reasons


def test_a_head_that_names_no_body_is_incompatible_before_any_load(folder: Path) -> None:
    pack = edit_head(folder, lambda _, metadata: metadata.pop("body_fingerprint"))
    assert judge(pack) == ("incompatible", ["it does not say which body it was trained for"])


@pytest.mark.parametrize(
    "vocab", [("I64", (4,), bytes(32)), ("I32", (0,), b""), ("I32", (9999,), bytes(39996))]
)
def test_a_draft_vocabulary_that_cannot_be_one_is_incompatible_before_any_load(
    folder: Path, vocab: tuple[str, tuple[int, ...], bytes]
) -> None:
    pack = edit_head(folder, lambda tensors, _: tensors.update({"mtp.draft_vocab": vocab}))
    tier, reasons = judge(pack)
    assert tier == "incompatible"
    assert "mtp.draft_vocab has" in reasons[0]
