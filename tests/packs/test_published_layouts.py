"""The head of every published checkpoint is found, counted and fully expected, wherever its tensors lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mtplxd.packs.contents import SIDECARS
from mtplxd.packs.detector import detect_head
from mtplxd.packs.pack import read_pack
from support.published_configs import KIMI_K2, KIMI_K3, QWEN
from support.published_keys import RELEASES, Release, body_keys, qwen, release, write_release, write_sparse
from support.without_mlx import environment_without_mlx

each_release = pytest.mark.parametrize("one", RELEASES, ids=lambda one: one.name)
with_body = pytest.mark.parametrize(
    "one", [one for one in RELEASES if body_keys(one.config)], ids=lambda one: one.name
)


@each_release
def test_head_among_the_bodys_shards_is_found_whole(one: Release, tmp_path: Path) -> None:
    assert len(one.keys) == one.count
    pack = read_pack(write_release(tmp_path / "pack", one.config, one.keys))
    report = detect_head(pack)
    assert (report.missing, report.extra, report.misshapen) == ((), (), ())
    assert (
        all("put it into a pair" in text for text in report.faults)
        if one.layout == "assistant"
        else not report.faults
    )
    assert (report.present, report.tensors, report.layout) == (True, one.count, one.layout)
    assert (report.prefix, report.layers, report.depth_max) == (one.prefix, one.layers, one.depth_max)
    assert report.file is None
    assert report.located.keys() == one.keys.keys() == pack.head_tensors.keys()


@with_body
def test_head_in_a_file_of_its_own_is_the_same_head(one: Release, tmp_path: Path) -> None:
    inside = read_pack(write_release(tmp_path / "inside", one.config, one.keys))
    for at, sidecar in enumerate(SIDECARS):
        folder = write_release(tmp_path / f"beside{at}", one.config, one.keys, sidecar=sidecar)
        beside = read_pack(folder)
        report = detect_head(beside)
        assert (report.tensors, report.problems, report.file) == (one.count, (), folder / sidecar)
        assert (beside.bytes_head, beside.bytes_body) == (inside.bytes_head, inside.bytes_body)


@with_body
def test_head_in_a_single_file_model_without_an_index_is_found(one: Release, tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", one.config, {})
    for file in folder.glob("model*"):
        file.unlink()
    write_sparse(folder / "model.safetensors", body_keys(one.config) | one.keys)
    report = detect_head(read_pack(folder))
    assert (report.tensors, report.problems) == (one.count, ())


@with_body
def test_bytes_of_body_and_head_are_told_apart(one: Release, tmp_path: Path) -> None:
    pack = read_pack(write_release(tmp_path / "pack", one.config, one.keys))
    assert pack.body_tensors.keys() == body_keys(one.config).keys()
    stored = sum(info.nbytes for file in pack.headers.values() for info in file.values())
    assert pack.bytes_body + pack.bytes_head == stored
    assert pack.bytes_head == sum(info.nbytes for info in pack.headers[pack.body_files[1]].values())


@pytest.mark.parametrize(
    "wrap", ["model.", "language_model.", "language_model.model.", "model.language_model."]
)
@with_body
def test_wrapped_names_are_the_same_head(one: Release, wrap: str, tmp_path: Path) -> None:
    keys = {wrap + name.removeprefix("model."): shape for name, shape in one.keys.items()}
    report = detect_head(read_pack(write_release(tmp_path / "pack", one.config, keys)))
    assert (report.tensors, report.problems) == (one.count, ())
    assert report.prefix == wrap + one.prefix.removeprefix("model.")
    wrapped = one.layout == "prefix" and "language_model" in wrap
    assert report.layout == ("language_model_prefix" if wrapped else one.layout)


@pytest.mark.parametrize("config", [KIMI_K2, KIMI_K3], ids=["K2", "K3"])
def test_kimi_declares_no_layers_and_has_no_head(config: dict[str, object], tmp_path: Path) -> None:
    report = detect_head(read_pack(write_release(tmp_path / "pack", config, {})))
    assert (report.present, report.notes, report.problems) == (False, (), ())


def test_copies_of_the_bodys_matrices_are_listed_with_what_they_repeat(tmp_path: Path) -> None:
    one = release("GLM-4.5")
    report = detect_head(read_pack(write_release(tmp_path / "pack", one.config, one.keys)))
    assert report.aliases == {"embed_tokens": "model.embed_tokens.weight", "lm_head": "lm_head.weight"}
    assert report.copies == {
        "model.layers.92.embed_tokens.weight": "model.embed_tokens.weight",
        "model.layers.92.shared_head.head.weight": "lm_head.weight",
    }


def test_a_head_without_copies_takes_the_bodys_matrices(tmp_path: Path) -> None:
    one = release("GLM-4.6")
    report = detect_head(read_pack(write_release(tmp_path / "pack", one.config, one.keys)))
    assert report.aliases == {"embed_tokens": "model.embed_tokens.weight", "lm_head": "lm_head.weight"}
    assert report.copies == {}


@pytest.mark.parametrize(
    ("name", "aliases"),
    [
        ("Step-3.5-Flash", {"embed_tokens": "model.embed_tokens.weight"}),
        ("LongCat-Flash", {"lm_head": "lm_head.weight"}),
        ("Ernie-4.5-21B", dict.fromkeys(("embed_tokens", "lm_head"), "model.embed_tokens.weight")),
        ("Nemotron-3-Nano", {"embed_tokens": "backbone.embeddings.weight", "lm_head": "lm_head.weight"}),
    ],
)
def test_parts_of_its_own_are_no_aliases(name: str, aliases: dict[str, str], tmp_path: Path) -> None:
    one = release(name)
    report = detect_head(read_pack(write_release(tmp_path / "pack", one.config, one.keys)))
    assert report.aliases == aliases


def test_a_head_that_starts_in_its_own_file_and_ends_in_the_bodys_is_one(tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", QWEN, qwen(QWEN))
    half = dict(list(qwen(QWEN).items())[:7])
    write_sparse(
        folder / "model-00002-of-00002.safetensors", {k: v for k, v in qwen(QWEN).items() if k not in half}
    )
    write_sparse(folder / "mtp.safetensors", half)
    report = detect_head(read_pack(folder))
    assert (report.tensors, report.problems, report.file, report.notes) == (15, (), None, ())


def test_a_second_head_in_the_bodys_files_is_said_to_be_unused_and_is_no_body(tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", QWEN, qwen(QWEN))
    alone = read_pack(folder)
    write_sparse(folder / "mtp.safetensors", qwen(QWEN))
    both = read_pack(folder)
    report = detect_head(both)
    assert (report.tensors, report.problems, report.file) == (15, (), folder / "mtp.safetensors")
    assert "not used" in report.notes[0]
    assert both.bytes_body == alone.bytes_body


def test_half_a_head_of_its_own_is_not_filled_up_from_another_head(tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", QWEN, qwen(QWEN))
    write_sparse(folder / "mtp.safetensors", dict(list(qwen(QWEN).items())[:7]))
    report = detect_head(read_pack(folder))
    assert (report.tensors, len(report.missing), report.file) == (7, 8, folder / "mtp.safetensors")


def test_the_file_that_the_config_names_holds_the_head(tmp_path: Path) -> None:
    config = {**QWEN, "mlx_lm_extra_tensors": {"mtp_file": "extra/head.safetensors"}}
    folder = write_release(tmp_path / "pack", config, qwen(QWEN), sidecar="extra/head.safetensors")
    report = detect_head(read_pack(folder))
    assert (report.tensors, report.file) == (15, folder / "extra/head.safetensors")


def test_a_tensor_of_the_head_that_an_index_puts_into_the_sidecar_is_read_once(tmp_path: Path) -> None:
    import json

    one = release("GLM-4.6")
    folder = write_release(tmp_path / "pack", one.config, one.keys, sidecar="mtp.safetensors")
    weight_map = dict.fromkeys(body_keys(one.config), "model.safetensors")
    weight_map |= dict.fromkeys(one.keys, "mtp.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    report = detect_head(read_pack(folder))
    assert (report.tensors, report.problems) == (500, ())


def test_the_largest_head_is_known_within_a_second_and_without_mlx(tmp_path: Path) -> None:
    one = release("DeepSeek-V3.1")
    folder = write_release(tmp_path / "pack", one.config, one.keys)
    code = (
        "import sys, time; from pathlib import Path; start = time.process_time();"
        "from mtplxd.packs.pack import read_pack; from mtplxd.packs.detector import detect_head;"
        "from mtplxd.packs.tiers import judge; pack = read_pack(Path(sys.argv[1])); report = detect_head(pack);"
        "judge(pack, report);"
        "print(report.tensors, len(report.problems), time.process_time() - start < 1, 'mlx' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env=environment_without_mlx(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert ran.stdout.split() == ["1564", "0", "True", "False"], ran.stderr
