"""How the bytes of a frame are packed, losing nothing: floats in planes of like bits, each plane in LZ4 where it pays.

Exponents are taken apart as `exponents` does; signs and mantissas look like noise and stay as they are. Knows no file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import lz4.block
import numpy as np
from numpy.typing import NDArray

from mtplxd.store.blocks import WIDTHS, Data
from mtplxd.store.exponents import Exponents, Nibbles, Tiles

FAST, TIGHT = 0, 1
"""Levels: what a running daemon can afford, and what an idle one can."""
RAW, PLAIN, ZERO, NIBBLES, TILES = 0, 1, 2, 3, 4
_EXPONENTS: dict[int, Exponents] = {NIBBLES: Nibbles(), TILES: Tiles()}
_FLOATS = frozenset({"bfloat16", "float32"})
"""Those that have eight bits of exponent."""
_SAMPLE, _SAMPLES = 1024, 4
_PAYS = 0.97
_SPAN = 1 << 15
"""Numbers that are put together at a time, so that they and what is made of them on the way stay in the cache."""
_PLANE = struct.Struct("<BI")

Bytes = NDArray[Any]
"""Of uint8."""


def pack(raw: Data, dtype: str, level: int) -> tuple[int, bytes | memoryview]:
    """How a frame of numbers of one dtype is packed, and the bytes it becomes, never more than it has."""
    view = memoryview(raw).cast("B")
    if dtype in _FLOATS and len(view) >= _SAMPLE * _SAMPLES:
        exponents, rest = _turn(view, WIDTHS[dtype])
        ways = [NIBBLES] if level == FAST else [NIBBLES, TILES]
        packed = {way: _join_planes([*_EXPONENTS[way].split(exponents), *rest], level) for way in ways}
        best = min(packed, key=lambda way: len(packed[way]))
        if len(packed[best]) < len(view) * _PAYS:
            return best, packed[best]
    return _pack_plane(np.frombuffer(view, np.uint8), level)


def unpack(how: int, stored: Data, dtype: str, target: memoryview) -> None:
    """Fills `target` with what was packed; raises ValueError for bytes that cannot be it."""
    out = np.frombuffer(target, np.uint8)
    if how not in _EXPONENTS:
        out[:] = _unpack_plane(how, stored, len(out))
    elif dtype in _FLOATS:
        _turn_back(_EXPONENTS[how], memoryview(stored), out, WIDTHS[dtype])
    else:
        raise ValueError(f"exponents of {dtype}")


def _turn(raw: memoryview, width: int) -> tuple[Bytes, list[Bytes]]:
    """The exponents of floats, and the planes of their signs and mantissas: turned by a bit, each has bytes alone."""
    turned: NDArray[Any] = np.frombuffer(raw, np.uint16 if width == 2 else np.uint32)
    turned = (turned << 1) | (turned >> (8 * width - 1))
    octets = turned.view(np.uint8)
    if width == 2:
        return octets[1::2], [octets[0::2]]
    low = np.ascontiguousarray(turned.view(np.uint16)[0::2])
    return octets[3::4], [octets[2::4], low.view(np.uint8)]


def _turn_back(way: Exponents, stored: memoryview, out: Bytes, width: int) -> None:
    numbers: NDArray[Any] = out.view(np.uint16 if width == 2 else np.uint32)
    count = len(numbers)
    of_exponents = way.lengths(count)
    of_rest = [count] if width == 2 else [count, 2 * count]
    planes = _split_planes(stored, [*of_exponents, *of_rest])
    exponents = way.join(planes[: len(of_exponents)], count)
    rest = [plane.view(f"u{len(plane) // count}") for plane in planes[len(of_exponents) :]]
    for begin in range(0, count, _SPAN):
        span = slice(begin, begin + _SPAN)
        part = numbers[span]
        np.copyto(part, exponents[span])
        for plane in rest:
            part <<= 8 * plane.itemsize
            part |= plane[span]
        sign = part << (8 * width - 1)
        part >>= 1
        part |= sign


def _join_planes(planes: Sequence[Bytes], level: int) -> bytes:
    packed = [_pack_plane(plane, level) for plane in planes]
    return b"".join(
        [*(_PLANE.pack(how, len(stored)) for how, stored in packed), *(stored for _, stored in packed)]
    )


def _split_planes(stored: memoryview, lengths: list[int]) -> list[Bytes]:
    at = _PLANE.size * len(lengths)
    planes = []
    if len(stored) < at:
        raise ValueError("too short")
    for place, length in enumerate(lengths):
        how, size = _PLANE.unpack_from(stored, place * _PLANE.size)
        planes.append(_unpack_plane(how, stored[at : at + size], length))
        at += size
    if at != len(stored):
        raise ValueError("another length")
    return planes


def _pack_plane(plane: Bytes, level: int) -> tuple[int, bytes | memoryview]:
    """A plane in LZ4 where that pays, which samples of it tell."""
    if not plane.any():
        return ZERO, b""
    plane = np.ascontiguousarray(plane)
    if _seems_regular(plane):
        stored = _lz4(plane, level)
        if len(stored) < len(plane) * _PAYS:
            return PLAIN, stored
    return RAW, plane.data


def _seems_regular(plane: Bytes) -> bool:
    if len(plane) < 2 * _SAMPLE * _SAMPLES:
        return True
    step = len(plane) // _SAMPLES
    sample = np.concatenate([plane[begin : begin + _SAMPLE] for begin in range(0, step * _SAMPLES, step)])
    return len(_lz4(sample, FAST)) < len(sample) * _PAYS


def _unpack_plane(how: int, stored: Data, length: int) -> Bytes:
    if how == RAW:
        return _exact(np.frombuffer(stored, np.uint8), length)
    if how == PLAIN:
        return _unlz4(stored, length)
    if how == ZERO:
        return _exact(np.zeros(length if len(stored) == 0 else 0, np.uint8), length)
    raise ValueError(f"packing {how}")


def _lz4(plane: Bytes, level: int) -> bytes:
    if level > FAST:
        tight: bytes = lz4.block.compress(
            plane.data, mode="high_compression", compression=5, store_size=False
        )
        return tight
    packed: bytes = lz4.block.compress(plane.data, store_size=False)
    return packed


def _unlz4(stored: Data, length: int) -> Bytes:
    try:
        return _exact(np.frombuffer(lz4.block.decompress(stored, uncompressed_size=length), np.uint8), length)
    except lz4.block.LZ4BlockError as error:
        raise ValueError("no LZ4") from error


def _exact(plane: Bytes, length: int) -> Bytes:
    if len(plane) != length:
        raise ValueError(f"{len(plane)} bytes instead of {length}")
    return plane
