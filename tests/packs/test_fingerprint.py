"""A fingerprint changes with what a model computes, and with nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import DataLoss
from mtplxd.packs.fingerprint import body_fingerprint, head_fingerprint
from mtplxd.packs.headers import write_tensors
from mtplxd.packs.pack import read_pack
from safetensors.numpy import load_file, save_file
from support.tiny_pack import make_tiny_pack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_pack(tmp_path / "tiny")


def fingerprint(folder: Path) -> str:
    return body_fingerprint(read_pack(folder))


def edit_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes, indent=7))


def test_it_is_the_hash_of_the_documented_rule(folder: Path) -> None:
    import hashlib

    expected = hashlib.sha256()
    tensors = load_file(folder / "model.safetensors")
    for name in sorted(tensors):
        expected.update(json.dumps([name, "F16", list(tensors[name].shape)]).encode() + b"\n")
        expected.update(tensors[name].tobytes())
    config = json.loads((folder / "config.json").read_text())
    for name in ("architectures", "bos_token_id", "eos_token_id", "torch_dtype"):
        config.pop(name)
    expected.update(json.dumps(config, sort_keys=True, separators=(",", ":")).encode())
    assert fingerprint(folder) == f"sha256:{expected.hexdigest()}"


def test_sharding_order_and_padding_do_not_count(folder: Path) -> None:
    before = fingerprint(folder)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors, reverse=True)
    (folder / "model.safetensors").unlink()
    save_file(
        {name: tensors[name] for name in names[:5]}, folder / "model-1.safetensors", {"padding": "x" * 999}
    )
    save_file({name: tensors[name] for name in names[5:]}, folder / "model-2.safetensors")
    assert fingerprint(folder) == before


def test_a_head_does_not_change_the_body(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "mtp.safetensors").unlink()
    assert fingerprint(folder) == before


@pytest.mark.parametrize("field", ["torch_dtype", "transformers_version", "_name_or_path", "eos_token_id"])
def test_fields_that_compute_nothing_do_not_count(folder: Path, field: str) -> None:
    before = fingerprint(folder)
    edit_config(folder, **{field: "something else", "never_set": None})
    assert fingerprint(folder) == before


@pytest.mark.parametrize(
    "field", ["rope_theta", "rms_norm_eps", "num_attention_heads", "tie_word_embeddings"]
)
def test_fields_that_compute_count(folder: Path, field: str) -> None:
    before = fingerprint(folder)
    edit_config(folder, **{field: 12345})
    assert fingerprint(folder) != before


def test_one_changed_bit_counts_even_under_an_old_time(folder: Path) -> None:
    before = fingerprint(folder)
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert fingerprint(folder) != before


@pytest.mark.parametrize("change", ["name", "shape", "dtype"])
def test_head_counts_names_shapes_and_dtypes(tmp_path: Path, change: str) -> None:
    name, shape, dtype = "a", (2, 3), "F16"
    write_tensors(tmp_path / "1", {name: (dtype, shape)}, iter([(name, bytes(12))]))
    name, shape, dtype = {
        "name": ("b", shape, dtype),
        "shape": (name, (3, 2), dtype),
        "dtype": (name, shape, "BF16"),
    }[change]
    write_tensors(tmp_path / "2", {name: (dtype, shape)}, iter([(name, bytes(12))]))
    assert head_fingerprint(tmp_path / "1") != head_fingerprint(tmp_path / "2")


@pytest.mark.parametrize("named", ["taps", "recursion", "concat", "norm_convention"])
def test_how_a_heads_weights_are_used_counts(tmp_path: Path, named: str) -> None:
    for at, metadata in enumerate(({named: "one"}, {named: "other"})):
        save_file({"a": np.ones(2, np.float32)}, tmp_path / f"{at}", metadata)
    assert head_fingerprint(tmp_path / "0") != head_fingerprint(tmp_path / "1")


def test_other_metadata_of_a_head_does_not_count(tmp_path: Path) -> None:
    for at, metadata in enumerate(({}, {"layout": "adapter", "body_fingerprint": "sha256:0"})):
        save_file({"a": np.ones(2, np.float32)}, tmp_path / f"{at}", metadata)
    assert head_fingerprint(tmp_path / "0") == head_fingerprint(tmp_path / "1")


def test_file_that_shrinks_meanwhile_is_refused(folder: Path) -> None:
    pack = read_pack(folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(DataLoss, match="shorter"):
        body_fingerprint(pack)
