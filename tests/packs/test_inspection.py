"""Inspecting reads headers and no weights, names what is wrong, and says the same wherever it is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mtplxd.errors import DataLoss, NotFound
from mtplxd.packs.folder import LocalFolder
from mtplxd.packs.inspection import Room, document, inspect_pack, look_up
from mtplxd.packs.pack import read_pack
from mtplxd.packs.verified import fingerprint_of, save_verification
from mtplxd.paths import Home
from mtplxd.residency.catalog import PackCatalog
from support.deepseek import TENSORS, write_deepseek
from support.published_configs import MIMO, QWEN
from support.published_keys import RELEASES, Release, mimo, qwen, release, write_release, write_sparse
from support.tiny_pack import make_tiny_pack
from support.verifications import passing_findings
from support.without_mlx import environment_without_mlx

GIB = 1 << 30
ROOM = Room(total=64 * GIB, budget=None, widens=False)
FIELDS = (
    "ref", "family", "model_type", "tier", "reasons", "head", "quantisation", "bytes", "can_run", "needs",
    "fits_this_machine",
)  # fmt: skip
HEAD_FIELDS = (
    "present", "layout", "prefix", "tensors", "layers", "depth_max", "missing", "extra", "aliases",
)  # fmt: skip


class CountingFolder(LocalFolder):
    """A folder on disk that adds up what is read of it, and where in which file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.bytes = 0
        self.ends: dict[str, int] = {}

    def read(self, name: str) -> bytes:
        content = super().read(name)
        self.bytes += len(content)
        return content

    def read_range(self, name: str, begin: int, length: int) -> bytes:
        content = super().read_range(name, begin, length)
        self.bytes += len(content)
        self.ends[name] = max(self.ends.get(name, 0), begin + len(content))
        return content


def look(folder: Path, room: Room = ROOM) -> dict[str, Any]:
    found = document(inspect_pack(read_pack(folder), str(folder), room))
    assert json.loads(json.dumps(found)) == found
    return found


def data_begins(file: Path) -> int:
    with file.open("rb") as content:
        return 8 + int.from_bytes(content.read(8), "little")


@pytest.mark.parametrize("one", RELEASES, ids=lambda one: one.name)
def test_every_published_head_is_told_in_the_documents_fields(one: Release, tmp_path: Path) -> None:
    found = look(write_release(tmp_path / "pack", one.config, one.keys))
    assert set(FIELDS) <= found.keys()
    assert set(HEAD_FIELDS) <= found["head"].keys()
    head = found["head"]
    assert (head["present"], head["tensors"], head["layout"]) == (True, one.count, one.layout)
    assert (head["prefix"] or "", head["layers"], head["depth_max"]) == (
        one.prefix,
        one.layers,
        one.depth_max,
    )
    assert (head["missing"], head["extra"]) == ([], [])


@pytest.mark.parametrize("whole", [False, True], ids=["1,564 tensors", "91,991 tensors"])
def test_a_checkpoint_of_terabytes_is_read_by_its_headers_alone(whole: bool, tmp_path: Path) -> None:
    one, folder = release("DeepSeek-V3.1"), tmp_path / "deepseek"
    if whole:
        write_deepseek(folder)
    else:
        write_release(folder, one.config, one.keys)
    counting = CountingFolder(folder)
    pack = read_pack(counting)
    found = document(inspect_pack(pack, "deepseek", ROOM))
    assert (found["head"]["tensors"], found["head"]["missing"], found["head"]["extra"]) == (1564, [], [])
    assert not whole or len(pack.body_tensors) == TENSORS - 1564
    assert counting.ends == {file.name: data_begins(file) for file in folder.glob("*.safetensors")}
    assert counting.bytes <= (24_000_000 if whole else 1_000_000)
    assert found["quantisation"] == {"method": "fp8", "block": [128, 128]}
    assert found["fits_this_machine"] is not whole


def test_neither_mlx_nor_the_wire_is_imported(tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", QWEN, qwen(QWEN))
    script = (
        "import sys; from mtplx_client.cli import main;"
        f"code = main(['inspect', {str(folder)!r}, '--json']);"
        "found = {name.split('.')[0] for name in sys.modules};"
        "print(code, sorted(found & {'mlx', 'mlx_lm', 'grpc', 'transformers', 'huggingface_hub'}))"
    )
    environment = environment_without_mlx(MTPLXD_HOME=str(tmp_path / "home"))
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    first, last = done.stdout.splitlines()
    assert json.loads(first)["head"]["tensors"] == 15
    assert last == "0 []"


def test_the_verdict_is_the_daemons(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    make_tiny_pack(home.packs / "tiny")
    make_tiny_pack(home.packs / "bare", head=False)
    write_release(home.packs / "half", QWEN, dict(list(qwen(QWEN).items())[:7]))
    write_release(home.packs / "strange", {**MIMO, "model_type": "mimosa"}, mimo(MIMO))
    catalog = PackCatalog(home)
    for name in ("tiny", "bare", "half", "strange"):
        pack = look_up(name, home)
        found, verdict = inspect_pack(pack, name, ROOM), catalog.verdict(catalog.resolve(name))
        assert (found.tier, found.reasons) == (verdict.tier, verdict.reasons)
        assert found.memory == catalog.need(pack, headless=not verdict.head_whole, widen=False).total


def test_what_each_tier_needs(tmp_path: Path) -> None:
    tiny = make_tiny_pack(tmp_path / "tiny")
    assert (look(tiny)["tier"], look(tiny)["can_run"], look(tiny)["needs"]) == (
        "unverified",
        False,
        "--force",
    )
    pack = read_pack(tiny)
    record = {**passing_findings(), "fingerprint": fingerprint_of(pack), "depths": list(range(9))}
    save_verification(pack, record)
    assert (look(tiny)["tier"], look(tiny)["can_run"], look(tiny)["needs"]) == ("verified", True, None)
    bare = look(make_tiny_pack(tmp_path / "bare", head=False))
    assert (bare["tier"], bare["can_run"], bare["needs"]) == ("no-mtp-head", False, "--plain")
    assert bare["head"] == {**bare["head"], "present": False, "layout": None, "tensors": 0, "aliases": {}}
    half = look(write_release(tmp_path / "half", QWEN, dict(list(qwen(QWEN).items())[:7])))
    assert (half["tier"], half["can_run"], half["needs"]) == ("incompatible", False, "--plain")


def test_a_config_that_declares_a_head_no_file_holds_is_told(tmp_path: Path) -> None:
    found = look(write_release(tmp_path / "pack", MIMO, {}))
    assert (found["tier"], found["head"]["present"]) == ("no-mtp-head", False)
    assert "num_nextn_predict_layers" in found["notes"][0]


def test_a_head_that_the_config_is_silent_about_is_found(tmp_path: Path) -> None:
    silent = {name: value for name, value in MIMO.items() if name != "num_nextn_predict_layers"}
    assert look(write_release(tmp_path / "pack", silent, mimo(MIMO)))["head"]["tensors"] == 16


def test_half_a_head_and_more_than_a_head_name_the_tensors(tmp_path: Path) -> None:
    keys = mimo(MIMO)
    half = look(write_release(tmp_path / "half", MIMO, dict(list(keys.items())[:5])))
    assert sorted(half["head"]["missing"]) == sorted(list(keys)[5:])
    stray = "model.mtp_layers.0.stray.weight"
    more = look(write_release(tmp_path / "more", MIMO, {**keys, stray: (4,)}))
    assert more["head"]["extra"] == [stray]
    assert (half["tier"], more["tier"]) == ("incompatible", "incompatible")
    assert any(stray in reason for reason in more["reasons"])


def test_a_head_of_another_width_or_vocabulary_is_named(tmp_path: Path) -> None:
    wide = look(write_release(tmp_path / "wide", {**MIMO, "hidden_size": 2048}, mimo(MIMO)))
    assert wide["tier"] == "incompatible"
    assert any(
        "input_proj.weight [4096, 8192] not [2048, 4096]" in text for text in wide["head"]["misshapen"]
    )
    one = release("GLM-4.5")
    words = look(write_release(tmp_path / "words", {**one.config, "vocab_size": 1000}, one.keys))
    assert any(
        "embed_tokens.weight [151552, 5120] not [1000, 5120]" in text for text in words["head"]["misshapen"]
    )


def test_an_unknown_model_type_is_named_and_nothing_helps(tmp_path: Path) -> None:
    found = look(write_release(tmp_path / "pack", {**MIMO, "model_type": "mimosa"}, {}))
    assert (found["tier"], found["needs"]) == ("incompatible", None)
    assert any("model_type mimosa" in reason for reason in found["reasons"])
    nameless = {name: value for name, value in MIMO.items() if name != "model_type"}
    folder = write_release(tmp_path / "nameless", MIMO, {})
    (folder / "config.json").write_text(json.dumps(nameless))
    assert any("names no model_type" in reason for reason in look(folder)["reasons"])


@pytest.mark.parametrize(
    ("asks", "tier", "said"),
    [
        ({"auto_map": {"AutoModel": "modeling.Model"}}, "no-mtp-head", "auto_map: AutoModel"),
        ({"model_file": "modeling.py"}, "incompatible", "model_file 'modeling.py'"),
    ],
)
def test_code_of_its_own_is_told_and_never_run(
    asks: dict[str, Any], tier: str, said: str, tmp_path: Path
) -> None:
    folder = write_release(tmp_path / "pack", {**MIMO, **asks}, {})
    (folder / "modeling.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w').close()")
    found = look(folder)
    assert found["tier"] == tier
    assert any(said in text for text in (*found["reasons"], *found["notes"]))
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b"[" * 100_000),
        ("model.safetensors.index.json", b"[]"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "../out.safetensors"}}'),
        ("model.safetensors.index.json", b'{"weight_map": {"a": "weights.bin"}}'),
        ("model-00001-of-00002.safetensors", b"\x80\x04."),
        ("model-00002-of-00002.safetensors", b"\xff" * 16),
        ("model-00002-of-00002.safetensors", (8).to_bytes(8, "little") + b'{"a": 1}'),
        ("model-00002-of-00002.safetensors", (1 << 16).to_bytes(8, "little") + b"[" * (1 << 16)),
        ("mtplx_runtime.json", b"not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", MIMO, mimo(MIMO))
    (folder / name).write_bytes(content)
    with pytest.raises(DataLoss, match=name.replace(".", r"\.")):
        look(folder)


def test_a_file_that_the_index_names_and_nobody_has_is_named(tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", MIMO, mimo(MIMO))
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DataLoss, match=r"missing .*model-00002-of-00002\.safetensors"):
        look(folder)


def test_a_config_of_endless_size_is_refused(tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", MIMO, {})
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataLoss, match=r"config\.json"):
        look(folder)


def test_a_pack_for_a_newer_engine_is_incompatible_with_both_versions(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    (folder / "mtplx_runtime.json").write_text(json.dumps({"mtplxd": {"format": 99}}))
    found = look(folder)
    assert (found["tier"], found["needs"]) == ("incompatible", None)
    assert "99" in found["reasons"][0]


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"quantization": {"group_size": 64, "bits": 4}}, {"method": "affine", "bits": 4, "group_size": 64}),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
         {"method": "fp8", "block": [128, 128]}),
        ({}, None),
    ],
)  # fmt: skip
def test_how_weights_are_stored_is_told(stated: dict[str, Any], said: object, tmp_path: Path) -> None:
    assert look(write_release(tmp_path / "pack", {**MIMO, **stated}, {}))["quantisation"] == said


def test_whether_it_fits_follows_the_machine_and_the_budget(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    needed = look(folder)["memory"]["needed"]
    assert look(folder)["fits_this_machine"]
    assert look(folder, Room(ROOM.total, None, widens=True))["memory"]["needed"] > needed
    assert not look(folder, Room(GIB // 2, None, widens=False))["fits_this_machine"]
    assert not look(folder, Room(ROOM.total, 200 << 20, widens=False))["fits_this_machine"]


def test_a_sparse_head_of_zeros_is_not_read_for_its_values(tmp_path: Path) -> None:
    """Values are judged when it is loaded: an inspection reads no weights."""
    folder = write_release(tmp_path / "pack", MIMO, {})
    write_sparse(folder / "mtp.safetensors", mimo(MIMO))
    assert look(folder)["head"]["file"] == "mtp.safetensors"
    assert not any("zero" in reason for reason in look(folder)["reasons"])


def test_a_name_that_is_nothing_is_not_found(home: Home) -> None:
    with pytest.raises(NotFound, match="nothing"):
        look_up("nothing", home)
