"""What a folder holds is known by its headers; one that is not whole is refused, naming the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import DataLoss, NotFound
from mtplxd.packs.manifest import Manifest, read_manifest, write_manifest
from mtplxd.packs.pack import read_pack
from safetensors.numpy import save_file
from support.tiny_pack import make_tiny_pack


def edit_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def split_in_shards(folder: Path) -> None:
    from safetensors.numpy import load_file

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, inside in parts.items():
        save_file({name: tensors[name] for name in inside}, folder / file)
    weight_map = {name: file for file, inside in parts.items() for name in inside}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_facts_come_from_config_and_headers(tmp_path: Path) -> None:
    pack = read_pack(make_tiny_pack(tmp_path / "tiny"))
    assert (pack.name, pack.model_type, pack.family, pack.context) == ("tiny", "llama", "llama", 2048)
    assert pack.sidecar == tmp_path / "tiny" / "mtp.safetensors"
    assert [file.name for file in pack.body_files] == ["model.safetensors"]
    headers_body = sum(info.nbytes for info in pack.headers[pack.body_files[0]].values())
    assert pack.bytes_body == headers_body > 100_000
    assert 0 < pack.bytes_head < pack.bytes_body < pack.bytes_total


def test_shards_count_as_one_body(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    whole = read_pack(folder)
    split_in_shards(folder)
    sharded = read_pack(folder)
    assert set(sharded.body_tensors) == set(whole.body_tensors)
    assert sharded.bytes_body == whole.bytes_body


def test_context_of_a_wrapped_text_model(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny", head=False)
    edit_config(folder, text_config={"max_position_embeddings": 77}, max_position_embeddings=None)
    assert read_pack(folder).context == 77


@pytest.mark.parametrize(
    "place", ["mtp/weights.safetensors", "model-mtp.safetensors", "model_mtp.safetensors"]
)
def test_sidecar_is_found_under_the_fields_other_names(tmp_path: Path, place: str) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / "mtp.safetensors").rename(folder / place)
    pack = read_pack(folder)
    assert pack.sidecar == folder / place
    assert [file.name for file in pack.body_files] == ["model.safetensors"]


def test_folder_without_model(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"config\.json"):
        read_pack(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00"])
def test_garbled_config_is_named(tmp_path: Path, text: str) -> None:
    folder = make_tiny_pack(tmp_path / "tiny", head=False)
    (folder / "config.json").write_text(text)
    with pytest.raises(DataLoss, match=r"config\.json"):
        read_pack(folder)


def test_config_without_context_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny", head=False)
    edit_config(folder, max_position_embeddings=None)
    with pytest.raises(DataLoss, match="longest sequence"):
        read_pack(folder)


@pytest.mark.parametrize(
    ("name", "size"),
    [("vocab_size", None), ("num_attention_heads", 0), ("hidden_size", "64"), ("num_hidden_layers", 2.5)],
)
def test_a_size_that_is_no_whole_number_is_named(tmp_path: Path, name: str, size: object) -> None:
    folder = make_tiny_pack(tmp_path / "tiny", head=False)
    edit_config(folder, **{name: size})
    with pytest.raises(DataLoss, match=rf"{name} in .*config\.json"):
        read_pack(folder)


def test_folder_without_weights_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny", head=False)
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataLoss, match="no weights"):
        read_pack(folder)


def test_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    split_in_shards(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DataLoss, match="model-00002-of-00002"):
        read_pack(folder)


@pytest.mark.parametrize("name", ["../other/model.safetensors", "/etc/passwd", ""])
def test_index_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = make_tiny_pack(tmp_path / "tiny", head=False)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(DataLoss, match="index"):
        read_pack(folder)


def test_truncated_weights_are_named(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(DataLoss, match=r"model\.safetensors"):
        read_pack(folder)


def test_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    save_file({"model.norm.weight": np.ones(64, np.float16)}, folder / "model-extra.safetensors")
    with pytest.raises(DataLoss, match="two weights files"):
        read_pack(folder)


def test_manifest_keeps_fields_nobody_here_knows(tmp_path: Path) -> None:
    fields = {
        "arch_id": "x",
        "mtp_depth_max": 3,
        "new_field": [1],
        "mtplxd": {"format": 1, "fingerprint": {"body": "b"}},
    }
    write_manifest(tmp_path, Manifest(fields))
    found = read_manifest(tmp_path)
    assert found is not None
    assert found.fields == fields
    assert (found.format, found.depth_max, found.body_fingerprint, found.head_fingerprint) == (
        1,
        3,
        "b",
        None,
    )


def test_pack_published_without_our_block(tmp_path: Path) -> None:
    write_manifest(tmp_path, Manifest({"arch_id": "x", "mtp_depth_max": 0}))
    found = read_manifest(tmp_path)
    assert found is not None
    assert (found.format, found.depth_max, found.verification, found.training) == (0, None, {}, {})


@pytest.mark.parametrize("text", ["", "[1]", '{"mtplxd": {"format": "new"}}'])
def test_garbled_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "mtplx_runtime.json").write_text(text)
    with pytest.raises(DataLoss, match="mtplx_runtime"):
        read_manifest(tmp_path)


def test_no_manifest(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
