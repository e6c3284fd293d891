"""Safetensors files are read by header, and one that is not whole is refused by name."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import DataLoss, NotFound
from mtplxd.packs.headers import TensorInfo, read_headers, read_metadata, write_tensors
from safetensors import safe_open
from safetensors.numpy import save_file


def write_raw(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(dtype: str, shape: list[Any], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_headers_of_a_file_another_library_wrote(tmp_path: Path) -> None:
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.ones(3, np.float16)}
    save_file(arrays, tmp_path / "x.safetensors", {"note": "hi"})
    headers = read_headers(tmp_path / "x.safetensors")
    assert {name: (info.dtype, info.shape) for name, info in headers.items()} == {
        "a": ("F16", (3,)),
        "b": ("F32", (2, 3)),
    }
    content = (tmp_path / "x.safetensors").read_bytes()
    assert content[headers["b"].begin : headers["b"].end] == arrays["b"].tobytes()
    assert read_metadata(tmp_path / "x.safetensors") == {"note": "hi"}


def test_file_written_here_is_read_by_another_library(tmp_path: Path) -> None:
    layout = {"a": ("F16", (2, 2)), "e": ("F32", (0,)), "s": ("I32", ())}
    contents = {"a": np.arange(4, dtype=np.float16), "e": np.empty(0, np.float32), "s": np.int32(7)}
    path = tmp_path / "x.safetensors"
    write_tensors(path, layout, ((name, array.tobytes()) for name, array in contents.items()), {"k": "v"})
    with safe_open(path, "np") as file:
        assert file.metadata() == {"k": "v"}
        np.testing.assert_array_equal(file.get_tensor("a"), contents["a"].reshape(2, 2))
        assert file.get_tensor("s") == 7
    assert read_headers(path)["e"] == TensorInfo(
        "F32", (0,), read_headers(path)["e"].begin, read_headers(path)["e"].end
    )


def test_writer_refuses_contents_that_do_not_follow_the_layout(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="layout"):
        write_tensors(tmp_path / "x", {"a": ("F16", (2,))}, iter([("a", b"123")]))


@pytest.mark.parametrize("keep", [0, 7, 8, 20, -1])
def test_truncated_file_is_refused_by_name(tmp_path: Path, keep: int) -> None:
    save_file({"a": np.ones(8, np.float32)}, tmp_path / "whole.safetensors")
    short = tmp_path / "short.safetensors"
    short.write_bytes((tmp_path / "whole.safetensors").read_bytes()[:keep])
    with pytest.raises(DataLoss, match=r"short\.safetensors"):
        read_headers(short)


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (b"not json at all", b""),
        (b'"text"', b""),
        (b"\xff\xfe{}", b""),
        ({"a": entry("F32", [2], 0, 8)}, b"1234567"),
        ({"a": entry("F32", [2], 0, 8)}, b"123456789"),
        ({"a": entry("F32", [3], 0, 8)}, b"12345678"),
        ({"a": entry("F99", [2], 0, 8)}, b"12345678"),
        ({"a": entry("F32", [-2], 0, 8)}, b"12345678"),
        ({"a": entry("F32", [2.0], 0, 8)}, b"12345678"),
        ({"a": entry("F32", [True], 0, 4)}, b"1234"),
        ({"a": entry("F32", [1], 4, 8)}, b"12345678"),
        ({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, b"123456789012"),
        ({"a": {"dtype": "F32", "shape": [2]}}, b"12345678"),
        ({"a": None}, b""),
        ({"__metadata__": {"n": 1}}, b""),
    ],
)
def test_garbled_header_is_refused(tmp_path: Path, header: object, data: bytes) -> None:
    path = write_raw(tmp_path / "bad.safetensors", header, data)
    with pytest.raises(DataLoss, match=r"bad\.safetensors"):
        read_metadata(path) if "__metadata__" in str(header) else read_headers(path)


def test_header_longer_than_any_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    with pytest.raises(DataLoss):
        read_headers(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_headers(tmp_path / "none.safetensors")
