"""The safetensors container: headers read without loading a tensor, and files written tensor by tensor.

It knows the format's layout and its faults; what the tensors mean is for the other modules.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mtplxd.errors import DataLoss, NotFound
from mtplxd.packs.folder import Folder, LocalFolder

ITEM_BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
MAX_HEADER = 100 * 1024 * 1024
REFETCH = "the file is damaged or incomplete, fetch it again"


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file: its dtype as safetensors names it, and bytes [begin, end) of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Header(NamedTuple):
    """What a safetensors file says of itself: its tensors by name, and its free text pairs."""

    tensors: dict[str, TensorInfo]
    metadata: dict[str, str]


Read = Callable[[int, int], bytes]
"""Gives bytes of a file: from where on, and how many; fewer where it ends."""


def read_headers(path: Path) -> dict[str, TensorInfo]:
    """Every tensor of a safetensors file. Raises NotFound without a file, DataLoss when it is not whole."""
    return _read_local(path).tensors


def read_metadata(path: Path) -> dict[str, str]:
    """The free text pairs a safetensors file carries; same errors as `read_headers`."""
    return _read_local(path).metadata


def read_header(folder: Folder, name: str) -> Header:
    """Both at once of a file in a folder, wherever that is; same errors as `read_headers`."""
    path, total = folder.path / name, folder.size(name)
    raw, start = _parse(lambda begin, length: folder.read_range(name, begin, length), path, total)
    return Header(_tensors(raw, path, start, total), _metadata(raw, path))


def _read_local(path: Path) -> Header:
    if not path.is_file():
        raise NotFound("no such file", path, "check the path")
    return read_header(LocalFolder(path.parent), path.name)


def _parse(read: Read, path: Path, total: int) -> tuple[dict[str, Any], int]:
    prefix = read(0, 8)
    if len(prefix) < 8:
        raise _damaged(path, "shorter than its length field")
    (length,) = struct.unpack("<Q", prefix)
    if not 2 <= length <= MAX_HEADER or 8 + length > total:
        raise _damaged(path, "its header does not fit in it")
    try:
        header = json.loads(read(8, length))
    except (ValueError, RecursionError):
        raise _damaged(path, "its header is not JSON") from None
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a table")
    return header, 8 + length


def _tensors(header: dict[str, Any], path: Path, start: int, total: int) -> dict[str, TensorInfo]:
    tensors = {
        name: _tensor(name, entry, path, start) for name, entry in header.items() if name != "__metadata__"
    }
    at = start
    for info in sorted(tensors.values(), key=lambda info: (info.begin, info.end)):
        if info.begin != at:
            raise _damaged(path, "its tensors overlap or leave gaps")
        at = info.end
    if at != total:
        raise _damaged(path, f"{total} bytes where the header promises {at}")
    return tensors


def _tensor(name: str, entry: Any, path: Path, start: int) -> TensorInfo:
    try:
        dtype, (begin, end) = entry["dtype"], entry["data_offsets"]
        shape = tuple(entry["shape"])
        numbers = (begin, end, *shape)
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError(name)
        bits = ITEM_BITS[dtype] * math.prod(shape)
    except (KeyError, TypeError, ValueError):
        raise _damaged(path, f"the entry of {name} cannot be read") from None
    if end - begin != (bits + 7) // 8:
        raise _damaged(path, f"the size of {name} does not follow from its shape")
    return TensorInfo(dtype, shape, start + begin, start + end)


def _metadata(header: dict[str, Any], path: Path) -> dict[str, str]:
    pairs = header.get("__metadata__") or {}  # MLX writes null where there is nothing to say
    if not isinstance(pairs, dict) or not all(isinstance(value, str) for value in pairs.values()):
        raise _damaged(path, "its metadata is not text")
    return dict(pairs)


def _damaged(path: Path, why: str) -> DataLoss:
    return DataLoss(f"damaged weights file, {why}", path, REFETCH)


def write_tensors(
    path: Path,
    layout: Mapping[str, tuple[str, tuple[int, ...]]],
    contents: Iterator[tuple[str, bytes]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a safetensors file whose bytes depend on nothing but its content.

    `layout` gives dtype and shape of each name, in the order of the file; `contents` must yield the same
    names in the same order, so only one tensor is in memory at a time.
    """
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    at = 0
    for name, (dtype, shape) in layout.items():
        size = (ITEM_BITS[dtype] * math.prod(shape) + 7) // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for expected, (name, data) in zip(layout, contents, strict=True):
            begin, end = header[name]["data_offsets"]
            if name != expected or len(data) != end - begin:
                raise ValueError(f"tensor {name} does not follow the layout at {expected}")
            file.write(data)


def read_tensor(file: Path, info: TensorInfo) -> bytes:
    """A tensor's bytes as they are stored. Raises OSError."""
    with file.open("rb") as opened:
        opened.seek(info.begin)
        return opened.read(info.nbytes)
