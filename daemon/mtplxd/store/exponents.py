"""The two ways in which the exponents of a frame of floats become planes of few bits, and come back.

They lie close together: below the largest of a frame nearly all take four bits, below the largest of a channel's
positions nearby nearly all take three. What is beyond goes to a plane that is nearly empty. Packs no plane itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[Any]
"""Of uint8."""
COLUMNS, ROWS = 128, 64
"""Positions follow each other with 64, 128 or 256 numbers; a channel stays in its column for two positions in a row or
for one, or shares it with another. So many rows have a largest one together."""


class Exponents(Protocol):
    """A way to take exponents apart."""

    def lengths(self, count: int) -> list[int]:
        """Bytes of each plane of so many exponents."""

    def split(self, exponents: Bytes) -> list[Bytes]:
        """The planes of exponents."""

    def join(self, planes: Sequence[Bytes], count: int) -> Bytes:
        """The exponents of planes."""


class Nibbles:
    """The largest of all; what each is below it in its lower four bits, two to a byte, and the same in its upper."""

    def lengths(self, count: int) -> list[int]:
        half = (count + 1) // 2
        return [1, half, half]

    def split(self, exponents: Bytes) -> list[Bytes]:
        largest = exponents.max()
        below = np.zeros(len(exponents) + len(exponents) % 2, np.uint8)
        np.subtract(largest, exponents, out=below[: len(exponents)])
        first, second = np.split(below, 2)
        return [np.array([largest], np.uint8), (first & 15) | (second << 4), (first >> 4) | (second & 0xF0)]

    def join(self, planes: Sequence[Bytes], count: int) -> Bytes:
        largest, lower, upper = planes
        half = len(lower)
        below = np.empty(2 * half, np.uint8)
        np.bitwise_and(lower, 15, out=below[:half])
        np.right_shift(lower, 4, out=below[half:])
        if upper.any():
            below[:half] |= upper << 4
            below[half:] |= upper & 0xF0
        np.subtract(largest[0], below, out=below)
        return below[:count]


class Tiles:
    """The largest of each column of a tile; what each is below it in its lowest two bits, four to a byte, in the next,
    eight to a byte, and in the others."""

    def lengths(self, count: int) -> list[int]:
        rows = -(-count // COLUMNS)
        padded = rows * COLUMNS
        return [-(-rows // ROWS) * COLUMNS, padded // 4, padded // 8, padded]

    def split(self, exponents: Bytes) -> list[Bytes]:
        rows = -(-len(exponents) // COLUMNS)
        padded = np.zeros(rows * COLUMNS, np.uint8)
        padded[: len(exponents)] = exponents
        table = padded.reshape(rows, COLUMNS)
        largest = np.maximum.reduceat(table, np.arange(0, rows, ROWS), axis=0)
        below = (np.repeat(largest, ROWS, axis=0)[:rows] - table).reshape(-1)
        quarters = (below & 3).reshape(4, -1)
        pairs = quarters[0] | (quarters[1] << 2) | (quarters[2] << 4) | (quarters[3] << 6)
        return [largest.reshape(-1), pairs, np.packbits((below >> 2) & 1), below >> 3]

    def join(self, planes: Sequence[Bytes], count: int) -> Bytes:
        largest, pairs, bits, beyond = planes
        below = np.unpackbits(bits)
        below <<= 2
        for quarter, part in enumerate(below.reshape(4, -1)):
            part |= (pairs >> (2 * quarter)) & 3
        if beyond.any():
            below |= beyond << 3
        rows = len(below) // COLUMNS
        table = below.reshape(rows, COLUMNS)
        bases = np.repeat(largest.reshape(-1, COLUMNS), ROWS, axis=0)[:rows]
        np.subtract(bases, table, out=table)
        return below[:count]
