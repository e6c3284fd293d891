"""What a block is to the store: bytes with a name, no model and no arrays of one.

Says what is offered, what is kept and what is read back. Knows no file and no policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

JSON: TypeAlias = Union[bool, int, float, str, "list[JSON]", "dict[str, JSON]", None]
Data: TypeAlias = bytes | bytearray | memoryview

WIDTHS = {
    "bool": 1, "int8": 1, "uint8": 1,
    "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
"""Bytes of a number of each dtype that a tensor may have."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Numbers of one dtype (a key of WIDTHS) in C order, little-endian. Whoever has one never writes into `data`.

    Raises ValueError where the bytes are not as many as dtype and shape say.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Data

    def __post_init__(self) -> None:
        if self.dtype not in WIDTHS:
            raise ValueError(f"dtype {self.dtype} of {self.name}")
        if self.nbytes != math.prod(self.shape) * WIDTHS[self.dtype]:
            raise ValueError(f"{self.nbytes} bytes of {self.name} with shape {self.shape} of {self.dtype}")

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.data.nbytes if isinstance(self.data, memoryview) else len(self.data)


@dataclass(frozen=True, slots=True)
class BlockBytes:
    """The content of a block: tensors in an order of the offerer's, and what else it needs to make sense of them."""

    meta: Mapping[str, JSON]
    tensors: tuple[Tensor, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Offered:
    """A block to keep. `name`, `identity` and `parent` are as `keys` makes them; `parent` is the name of the block
    before it, or the identity where it is the first.

    A `tail` is shorter than a whole block and ends where a prompt or turn did; a longer tail or the whole block that
    begins with its tokens takes its place unless the tail's grade is higher. `grade`, from 0 on, tells how much a block
    is good for: one of a higher grade takes the place of one of the same name.
    """

    name: bytes
    identity: bytes
    parent: bytes
    tokens: tuple[int, ...]
    content: BlockBytes
    tail: bool = False
    grade: int = 0

    def kept(self, stored_bytes: int) -> Kept:
        """What is known of it once it lies in a file of so many bytes."""
        raw = self.content.nbytes
        return Kept(
            self.name, self.identity, self.parent, len(self.tokens), self.tail, self.grade, raw, stored_bytes
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """What is known of a block on disk without reading it. `length` is its tokens, `raw_bytes` those of its tensors,
    `stored_bytes` those of its file. `tail` and `grade` are as they were offered."""

    name: bytes
    identity: bytes
    parent: bytes
    length: int
    tail: bool
    grade: int
    raw_bytes: int
    stored_bytes: int
