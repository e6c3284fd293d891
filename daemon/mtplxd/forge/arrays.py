"""Writes arrays into safetensors files one at a time, and reads back what it wrote before it says that they are there.

At no time more than one array is in memory beside what it is made of. The same arrays give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import numpy as np

from mtplxd.errors import Cancelled, DataLoss
from mtplxd.files import sync_file, sync_folder
from mtplxd.forge.pacing import IsCancelled, Tell
from mtplxd.packs.headers import TensorInfo, read_headers, write_tensors
from mtplxd.platform.mlx import Array, mx

T = TypeVar("T")
Layout = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype, as a file calls it, and shape of each array."""

DTYPES: dict[Any, str] = {
    mx.bfloat16: "BF16", mx.float16: "F16", mx.float32: "F32",
    mx.bool_: "BOOL", mx.uint8: "U8", mx.int8: "I8", mx.uint16: "U16", mx.int16: "I16",
    mx.uint32: "U32", mx.int32: "I32", mx.uint64: "U64", mx.int64: "I64",
}  # fmt: skip
_CHUNK = 4 << 20


class Progress:
    """Counts bytes of one stage and stops where somebody asked for the end."""

    def __init__(self, stage: str, total: int, tell: Tell, cancelled: IsCancelled) -> None:
        self._stage, self._done, self._total = stage, 0, total
        self._tell, self._cancelled = tell, cancelled

    def step(self, size: int, detail: str) -> None:
        """So many bytes more are done. Raises Cancelled."""
        self._done += size
        self._tell(self._stage, self._done, self._total, detail)
        self.check()

    def check(self) -> None:
        """Raises Cancelled where somebody asked for the end."""
        if self._cancelled():
            raise Cancelled(f"the build was cancelled while it was to {self._stage}")


def write_file(
    path: Path, arrays: dict[str, Array], progress: Progress, metadata: Mapping[str, str] | None = None
) -> str:
    """Empties the arrays into a file, which takes its place whole, and gives the file's sha256 as read back.

    Raises Cancelled, OSError, DataLoss where the disk does not give back what was written; nothing is left then.
    """
    names = sorted(arrays)
    layout = {name: (DTYPES[arrays[name].dtype], tuple(arrays[name].shape)) for name in names}
    check = 0

    def contents() -> Iterator[tuple[str, bytes]]:
        nonlocal check
        for name in names:
            data = bytes_of(arrays.pop(name))
            check = crc32(data, check)
            yield name, data
            progress.step(len(data), path.name)

    return replace_file(
        path, layout, contents(), metadata, lambda partial: _read_back(partial, layout, check, progress)
    )


def replace_file(
    path: Path,
    layout: Layout,
    contents: Iterator[tuple[str, bytes]],
    metadata: Mapping[str, str] | None,
    look: Callable[[Path], T],
) -> T:
    """Writes a file that takes its place whole, once `look` has seen it on the disk; gives what that gave. Nothing is
    left of one that could not be written."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write_tensors(partial, layout, contents, metadata)
        sync_file(partial)
        found = look(partial)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)
    return found


def nbytes_of(arrays: Mapping[str, Array]) -> int:
    """Bytes that these arrays take in a file."""
    return sum(array.nbytes for array in arrays.values())


def bytes_of(array: Array) -> bytes:
    """As a file stores them."""
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array).tobytes()


def _read_back(path: Path, layout: Layout, check: int, progress: Progress) -> str:
    """The file's hash, once header and data are what they were meant to be."""
    found = read_headers(path)
    if {name: (info.dtype, info.shape) for name, info in found.items()} != layout:
        raise _other(path)
    whole, seen, begin = hashlib.sha256(), 0, _first_byte(found, path)
    with path.open("rb", buffering=0) as file:
        whole.update(file.read(begin))
        while chunk := file.read(_CHUNK):
            progress.check()
            whole.update(chunk)
            seen = crc32(chunk, seen)
    if seen != check:
        raise _other(path)
    return whole.hexdigest()


def _first_byte(found: Mapping[str, TensorInfo], path: Path) -> int:
    return min((info.begin for info in found.values()), default=path.stat().st_size)


def _other(path: Path) -> DataLoss:
    return DataLoss(
        "the disk gives back other bytes than were written", path.name, "check the disk, then resume"
    )
