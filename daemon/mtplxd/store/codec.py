"""How the bytes of a frame are packed, losing nothing: floats in planes of like bits, each plane in LZ4 where it pays.

Exponents lie close together, so below the largest of a frame they mostly take four bits: these are one plane, what they
need beyond is another, nearly empty one. Signs and mantissas look like noise and stay as they are. Knows no file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import lz4.block
import numpy as np
from numpy.typing import NDArray

from mtplxd.store.blocks import Data

FAST, TIGHT = 0, 1
"""Levels: what a running daemon can afford, and what an idle one can."""
RAW, PLAIN, ZERO, PLANES = 0, 1, 2, 3
_SAMPLE, _SAMPLES = 1024, 4
_PAYS = 0.97
_PLANE = struct.Struct("<BI")

Bytes = NDArray[np.uint8]


def pack(raw: Data, dtype: str, level: int) -> tuple[int, bytes | memoryview]:
    """How a frame of numbers of one dtype is packed, and the bytes it becomes, never more than it has."""
    view = memoryview(raw).cast("B")
    if dtype in _SPLITTERS and len(view) >= _SAMPLE * _SAMPLES:
        packed = _join_planes(_SPLITTERS[dtype](view), level)
        if len(packed) < len(view) * _PAYS:
            return PLANES, packed
    return _pack_plane(np.frombuffer(view, np.uint8), level)


def unpack(how: int, stored: Data, dtype: str, target: memoryview) -> None:
    """Fills `target` with what was packed; raises ValueError for bytes that cannot be it."""
    out = np.frombuffer(target, np.uint8)
    if how != PLANES:
        out[:] = _unpack_plane(how, stored, len(out))
    elif dtype in _JOINERS:
        _JOINERS[dtype](memoryview(stored), out)
    else:
        raise ValueError(f"planes of {dtype}")


def _split_16(raw: memoryview) -> list[Bytes]:
    turned = np.frombuffer(raw, np.uint16)
    turned = (turned << 1) | (turned >> 15)
    octets = turned.view(np.uint8)
    return [*_split_exponents(octets[1::2]), octets[0::2]]


def _split_32(raw: memoryview) -> list[Bytes]:
    turned = np.frombuffer(raw, np.uint32)
    turned = (turned << 1) | (turned >> 31)
    octets = turned.view(np.uint8)
    low = np.ascontiguousarray(turned.view(np.uint16)[0::2])
    return [*_split_exponents(octets[3::4]), octets[2::4], low.view(np.uint8)]


def _split_exponents(exponents: Bytes) -> list[Bytes]:
    """The largest exponent, what the others are below it in their lower four bits and in their upper four."""
    largest = exponents.max()
    below = np.zeros(len(exponents) + len(exponents) % 2, np.uint8)
    np.subtract(largest, exponents, out=below[: len(exponents)])
    first, second = np.split(below, 2)
    return [np.array([largest], np.uint8), (first & 15) | (second << 4), (first >> 4) | (second & 0xF0)]


def _fill_16(stored: memoryview, out: Bytes) -> None:
    numbers = out.view(np.uint16)
    count = len(numbers)
    half = (count + 1) // 2
    largest, lower, upper, rest = _split_planes(stored, [1, half, half, count])
    np.copyto(numbers, _join_exponents(largest, lower, upper, count))
    numbers <<= 8
    numbers |= rest
    sign = numbers << 15
    numbers >>= 1
    numbers |= sign


def _fill_32(stored: memoryview, out: Bytes) -> None:
    numbers = out.view(np.uint32)
    count = len(numbers)
    half = (count + 1) // 2
    largest, lower, upper, middle, low = _split_planes(stored, [1, half, half, count, 2 * count])
    np.copyto(numbers, _join_exponents(largest, lower, upper, count))
    numbers <<= 8
    numbers |= middle
    numbers <<= 16
    numbers |= low.view(np.uint16)
    sign = numbers << 31
    numbers >>= 1
    numbers |= sign


def _join_exponents(largest: Bytes, lower: Bytes, upper: Bytes, count: int) -> Bytes:
    half = len(lower)
    below = np.empty(2 * half, np.uint8)
    np.bitwise_and(lower, 15, out=below[:half])
    np.right_shift(lower, 4, out=below[half:])
    if upper.any():
        below[:half] |= upper << 4
        below[half:] |= upper & 0xF0
    np.subtract(largest[0], below, out=below)
    return below[:count]


def _join_planes(planes: list[Bytes], level: int) -> bytes:
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
    """A plane in LZ4 where that pays, which samples of it tell at the fast level."""
    if not plane.any():
        return ZERO, b""
    plane = np.ascontiguousarray(plane)
    if level > FAST or _seems_regular(plane):
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
            plane.data, mode="high_compression", compression=9, store_size=False
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


_SPLITTERS: dict[str, Callable[[memoryview], list[Bytes]]] = {"bfloat16": _split_16, "float32": _split_32}
_JOINERS: dict[str, Callable[[memoryview, Bytes], None]] = {"bfloat16": _fill_16, "float32": _fill_32}
