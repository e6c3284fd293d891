"""How a block lies in its file: a header that says all about it, then its bytes in checked frames, nothing after them.

    magic, version, header length (20 bytes), sha256 of these and the header, header (JSON)
    a frame each MiB of a run of tensors: how it is packed, raw and stored length, crc32 of the raw bytes and of the
    stored ones, half a sha256 over the block's name, the frame's place and these fields, then the stored bytes

A frame of another block, or at another place, does not pass. Numbers are checked as they come out, which is what
counts, and, by who looks for damage, also as they lie in the file: sums of 32 bits, at a tenth of what one of 128
takes. Knows no folder and no policy.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from mtplxd.store import codec
from mtplxd.store.blocks import WIDTHS, BlockBytes, Data, Kept, Offered, Tensor
from mtplxd.store.keys import LAYOUT, digest

MAGIC, VERSION = b"MTPLXKV\n", 2
FRAME = 1 << 20
"""Raw bytes of a frame at most."""
MAX_HEADER = 64 << 20
_START = struct.Struct("<8sIQ")
_FRAME = struct.Struct("<BIIII")
_SUM = 16


class Damaged(ValueError):
    """A file that is not what it was when it was written; the text says what is wrong with it."""


class Foreign(ValueError):
    """A file of another version or layout, or of nobody we know."""


@dataclass(frozen=True, slots=True)
class Header:
    """All that is known of a block but its numbers. `tensors` have name, dtype and shape each; `begin` is where the
    frames do."""

    name: bytes
    identity: bytes
    parent: bytes
    tokens: tuple[int, ...]
    tail: bool
    grade: int
    packed: int
    meta: dict[str, object]
    tensors: tuple[tuple[str, str, tuple[int, ...]], ...]
    begin: int

    @property
    def raw_bytes(self) -> int:
        """Bytes of its tensors."""
        return sum(_size(dtype, shape) for _, dtype, shape in self.tensors)

    def kept(self, stored_bytes: int) -> Kept:
        """What memory knows of it, in a file of so many bytes."""
        return Kept(
            self.name, self.identity, self.parent, len(self.tokens), self.tail, self.grade, self.raw_bytes, stored_bytes
        )  # fmt: skip

    def offered(self, content: BlockBytes) -> Offered:
        """The block as it was offered, once its numbers are read."""
        return Offered(
            self.name, self.identity, self.parent, self.tokens, content, self.tail, self.grade
        )  # fmt: skip


def write(offered: Offered, packed: int) -> Iterator[Data]:
    """The bytes of a block's file, piece by piece, as tight as the level `packed` of the codec packs."""
    text = _header_text(offered, packed)
    start = _START.pack(MAGIC, VERSION, len(text))
    yield start + hashlib.sha256(start + text).digest() + text
    tensors = [(tensor.dtype, memoryview(tensor.data).cast("B")) for tensor in offered.content.tensors]
    for place, (dtype, parts) in enumerate(_frames(tensors)):
        raw = parts[0] if len(parts) == 1 else b"".join(parts)
        how, stored = codec.pack(raw, dtype, packed)
        fields = _FRAME.pack(how, len(raw), len(stored), zlib.crc32(raw), zlib.crc32(stored))
        yield fields + _sum_of(offered.name, place, fields)
        yield stored


def most_bytes(offered: Offered) -> int:
    """Bytes that a block's file has at most."""
    content = offered.content
    frames = content.nbytes // FRAME + len(content.tensors)
    header = _START.size + 32 + len(_header_text(offered, 0))
    return header + content.nbytes + frames * (_FRAME.size + _SUM)


def read_header(data: Data) -> Header:
    """The header at the beginning of a file; raises Foreign or Damaged. More bytes may follow, and may be missing."""
    view = memoryview(data)
    if len(view) < len(MAGIC) or view[: len(MAGIC)] != MAGIC:
        raise Foreign("no block of ours")
    if len(view) < _START.size + 32:
        raise Damaged("cut off in its header")
    _, version, length = _START.unpack_from(view)
    if version != VERSION:
        raise Foreign(f"version {version}")
    begin = _START.size + 32 + length
    if length > MAX_HEADER or len(view) < begin:
        raise Damaged("cut off in its header")
    text = view[_START.size + 32 : begin]
    if (
        hashlib.sha256(bytes(view[: _START.size]) + bytes(text)).digest()
        != view[_START.size : _START.size + 32]
    ):
        raise Damaged("its header's checksum differs")
    return _parse(bytes(text), begin)


def header_bytes(data: Data) -> int:
    """Bytes to the end of the header, of a file's first bytes; 0 where they are too few or not ours."""
    if len(data) < _START.size or bytes(memoryview(data)[: len(MAGIC)]) != MAGIC:
        return 0
    return min(MAX_HEADER, int(_START.unpack_from(data)[2])) + _START.size + 32


def read(
    data: Data, breathe: Callable[[], None] = lambda: None, *, thorough: bool = False
) -> tuple[Header, BlockBytes]:
    """A whole file's block, in fresh memory that is the reader's own; raises Foreign or Damaged. Calls `breathe` after
    each frame. Unless it is `thorough`, damage to bytes that come to nothing is not looked for."""
    header = read_header(data)
    sizes = [(dtype, _size(dtype, shape)) for _, dtype, shape in header.tensors]
    target, at, filled = np.empty(header.raw_bytes, np.uint8).data, header.begin, 0
    for place, (dtype, length) in enumerate(_frame_sizes(sizes)):
        room = target[filled : filled + length]
        at = _read_frame(memoryview(data), at, header.name, place, dtype, room, thorough)
        filled += length
        breathe()
    if at != len(data):
        raise Damaged("more bytes than it has")
    tensors, begin = [], 0
    for (name, dtype, shape), (_, size) in zip(header.tensors, sizes, strict=True):
        tensors.append(Tensor(name, dtype, shape, target[begin : begin + size]))
        begin += size
    return header, BlockBytes(header.meta, tuple(tensors))  # type: ignore[arg-type]


def _header_text(offered: Offered, packed: int) -> bytes:
    header = {
        "layout": LAYOUT,
        "name": offered.name.hex(),
        "identity": offered.identity.hex(),
        "parent": offered.parent.hex(),
        "tokens": list(offered.tokens),
        "tail": offered.tail,
        "grade": offered.grade,
        "packed": packed,
        "meta": dict(offered.content.meta),
        "tensors": [[tensor.name, tensor.dtype, list(tensor.shape)] for tensor in offered.content.tensors],
    }
    return json.dumps(header, separators=(",", ":"), allow_nan=False).encode()


def _read_frame(
    data: memoryview, at: int, name: bytes, place: int, dtype: str, target: memoryview, thorough: bool
) -> int:
    """Fills `target` with a frame; returns where the next begins."""
    body = at + _FRAME.size + _SUM
    if len(data) < body:
        raise Damaged(f"cut off before frame {place}")
    how, raw_length, stored_length, raw_sum, stored_sum = _FRAME.unpack_from(data, at)
    stored = data[body : body + stored_length]
    if len(stored) != stored_length:
        raise Damaged(f"cut off in frame {place}")
    fields = bytes(data[at : at + _FRAME.size])
    if _sum_of(name, place, fields) != data[at + _FRAME.size : body] or raw_length != len(target):
        raise Damaged(f"the checksum of frame {place} differs")
    if thorough and zlib.crc32(stored) != stored_sum:
        raise Damaged(f"the bytes of frame {place} differ")
    try:
        codec.unpack(how, stored, dtype, target)
    except ValueError as error:
        raise Damaged(f"frame {place} cannot be unpacked") from error
    if zlib.crc32(target) != raw_sum:
        raise Damaged(f"the numbers of frame {place} differ")
    return body + int(stored_length)


def _sum_of(name: bytes, place: int, fields: bytes) -> bytes:
    return hashlib.sha256(name + place.to_bytes(8, "little") + fields).digest()[:_SUM]


def _frame_sizes(sizes: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Dtype and raw length of each frame of tensors of such dtypes and sizes: those of one dtype in a row share
    frames."""
    for dtype, run in groupby((each for each in sizes if each[1]), key=lambda each: each[0]):
        total = sum(size for _, size in run)
        for begin in range(0, total, FRAME):
            yield dtype, min(FRAME, total - begin)


def _frames(tensors: Sequence[tuple[str, memoryview]]) -> Iterator[tuple[str, list[memoryview]]]:
    """The frames of tensors, each as the parts of tensors that it is made of."""
    rest = [data for _, data in reversed(tensors)]
    for dtype, length in _frame_sizes((dtype, len(data)) for dtype, data in tensors):
        parts: list[memoryview] = []
        while length:
            data = rest.pop()
            part, more = data[:length], data[length:]
            if part:
                parts.append(part)
                length -= len(part)
            if more:
                rest.append(more)
        yield dtype, parts


def _parse(text: bytes, begin: int) -> Header:
    try:
        fields = json.loads(text)
        if fields["layout"] != LAYOUT:
            raise Foreign(f"layout {fields['layout']}")
        header = Header(
            name=bytes.fromhex(fields["name"]),
            identity=bytes.fromhex(fields["identity"]),
            parent=bytes.fromhex(fields["parent"]),
            tokens=tuple(fields["tokens"]),
            tail=fields["tail"],
            grade=fields["grade"],
            packed=fields["packed"],
            meta=fields["meta"],
            tensors=tuple((name, dtype, tuple(shape)) for name, dtype, shape in fields["tensors"]),
            begin=begin,
        )
        right = digest(header.parent, header.tokens) == header.name and header.raw_bytes >= 0
    except Foreign:
        raise
    except (ValueError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise Damaged("its header makes no sense") from error
    if not right:
        raise Damaged("its name is not that of its tokens")
    return header


def _size(dtype: str, shape: tuple[int, ...]) -> int:
    size = WIDTHS[dtype]
    for dimension in shape:
        size *= dimension
    return size
