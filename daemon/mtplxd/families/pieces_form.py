"""Pieces as bytes and back, exact to the bit in every dtype: a tree in JSON, and tensors that it points into.

Arrays of one dtype and shape lie in one tensor, one behind the other. Where the bytes go is decided outside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, Union

import numpy as np

from mtplxd.families.host import HostArray, on_device, on_host
from mtplxd.families.pieces import Piece
from mtplxd.platform.mlx import Array, mx

FORM = 1
"""Changes with what the JSON means."""
JSON: TypeAlias = Union[bool, int, float, str, "list[JSON]", "dict[str, JSON]", None]

_DTYPES = {
    str(dtype).removeprefix("mlx.core."): dtype
    for dtype in (
        mx.bool_, mx.int8, mx.uint8, mx.int16, mx.uint16, mx.int32, mx.uint32, mx.int64, mx.uint64,
        mx.float16, mx.bfloat16, mx.float32,
    )
}  # fmt: skip
_NUMPY: dict[str, Any] = {
    name: np.dtype("uint16" if name == "bfloat16" else name).newbyteorder("<") for name in _DTYPES
}


class TensorBytes(Protocol):
    """Numbers of one dtype in C order, little-endian."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def data(self) -> bytes | bytearray | memoryview: ...


@dataclass(frozen=True, slots=True)
class Packed:
    """A tensor that was packed here: `data` is its own memory, no array's."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview


@dataclass(slots=True)
class _Group:
    dtype: str
    shape: tuple[int, ...]
    arrays: list[Array | HostArray] = field(default_factory=list)

    def packed(self, name: str) -> Packed:
        whole = np.empty((len(self.arrays), *self.shape), _NUMPY[self.dtype])
        for place, array in enumerate(self.arrays):
            whole[place] = on_host(array)
        return Packed(name, self.dtype, whole.shape, whole.reshape(-1).view(np.uint8).data)


class Packer:
    """Takes trees of pieces and single arrays, and gives all of their bytes at the end."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, tuple[int, ...]], tuple[int, _Group]] = {}

    def array(self, array: Array | HostArray) -> JSON:
        """Takes an evaluated array; gives where it will lie."""
        dtype, shape = str(array.dtype).removeprefix("mlx.core."), tuple(array.shape)
        number, group = self._groups.setdefault(
            (dtype, shape), (len(self._groups), _Group(_known(dtype), shape))
        )
        group.arrays.append(array)
        return [number, len(group.arrays) - 1]

    def piece(self, piece: Piece) -> JSON:
        """Takes a piece whose arrays are evaluated; gives its tree."""
        return {
            "span": [piece.first, piece.last],
            "whole": piece.whole,
            "gap": piece.gap,
            "slots": [self.array(array) for array in piece.slots],
            "state": [None if array is None else self.array(array) for array in piece.state],
            "parts": [self.piece(part) for part in piece.parts],
        }

    def tensors(self) -> tuple[Packed, ...]:
        """The bytes of all that was taken, copied now."""
        return tuple(group.packed(f"g{number}") for number, group in self._groups.values())


class Unpacker:
    """Gives arrays back, each of them fresh; slots stay where the bytes lie. Raises ValueError for what no packer
    made."""

    def __init__(self, tensors: Sequence[TensorBytes]) -> None:
        self._groups = {tensor.name: (_known(tensor.dtype), _numbers(tensor)) for tensor in tensors}

    def array(self, where: JSON) -> Array:
        """The array that was packed there."""
        return on_device(self.lying(where))

    def lying(self, where: JSON) -> HostArray:
        """What was packed there, where it lies."""
        match where:
            case [int(number), int(place)] if f"g{number}" in self._groups:
                dtype, numbers = self._groups[f"g{number}"]
                if 0 <= place < len(numbers):
                    return HostArray(numbers[place], _DTYPES[dtype])
        raise ValueError(f"no array lies at {where}")

    def piece(self, tree: JSON) -> Piece:
        """The piece that was packed as this tree."""
        match tree:
            case {
                "span": [int(first), int(last)],
                "whole": bool(whole),
                "gap": bool(gap),
                "slots": list(slots),
                "state": list(state),
                "parts": list(parts),
            }:
                return Piece(
                    first,
                    last,
                    whole,
                    tuple(self.lying(where) for where in slots),
                    tuple(None if where is None else self.array(where) for where in state),
                    tuple(self.piece(part) for part in parts),
                    gap,
                )
        raise ValueError("the tree of a piece is not one")


def check_form(meta: Mapping[str, JSON]) -> None:
    """Raises ValueError for what was packed otherwise."""
    if meta.get("form") != FORM:
        raise ValueError(f"form {meta.get('form')} instead of {FORM}")


def _known(dtype: str) -> str:
    if dtype not in _DTYPES:
        raise ValueError(f"numbers of {dtype} cannot be kept")
    return dtype


def _numbers(tensor: TensorBytes) -> Any:
    """A tensor's numbers where they lie."""
    return np.frombuffer(tensor.data, _NUMPY[tensor.dtype], math.prod(tensor.shape)).reshape(tensor.shape)
