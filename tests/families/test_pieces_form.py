"""Pieces of every kind and dtype come back from their bytes bit by bit, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mtplxd.families.caches import RowCache, WindowCache
from mtplxd.families.filling import fill
from mtplxd.families.host import on_device, on_host
from mtplxd.families.pieces import Piece
from mtplxd.families.pieces_form import JSON, Packer, Unpacker, check_form
from mtplxd.platform.mlx import Array, mx

DTYPES = [
    mx.bool_, mx.int8, mx.uint8, mx.int16, mx.uint16, mx.int32, mx.uint32, mx.int64, mx.uint64,
    mx.float16, mx.bfloat16, mx.float32,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _await_device() -> Iterator[None]:
    yield
    mx.synchronize()


def bits(array: Array) -> bytes:
    width = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}[array.itemsize]
    return np.array(array if array.dtype == mx.bool_ else array.view(width)).tobytes()


def random_bits(shape: tuple[int, ...], dtype: Any, seed: int) -> Array:
    """Any pattern of bits: NaNs of every kind, infinities, zeros of both signs and subnormal numbers."""
    rng = np.random.default_rng(seed)
    if dtype == mx.bool_:
        return mx.array(rng.integers(0, 2, shape).astype(bool))
    size = mx.zeros((1,), dtype).itemsize
    raw = rng.integers(0, 256, (*shape[:-1], shape[-1] * size), dtype=np.uint8)
    return mx.array(raw).view(dtype)


def same(one: Piece, other: Piece) -> bool:
    plain = all(getattr(one, name) == getattr(other, name) for name in ("first", "last", "whole", "gap"))
    arrays = [(*one.slots, *one.state), (*other.slots, *other.state)]
    if not plain or len(arrays[0]) != len(arrays[1]) or len(one.parts) != len(other.parts):
        return False
    for mine, theirs in zip(*arrays, strict=True):
        if (mine is None) != (theirs is None):
            return False
        if mine is not None and (
            mine.dtype != theirs.dtype
            or mine.shape != theirs.shape
            or bits(on_device(mine)) != bits(on_device(theirs))
        ):
            return False
    return all(map(same, one.parts, other.parts))


def through_bytes(pieces: list[Piece]) -> list[Piece]:
    mx.eval([array for piece in pieces for array in piece.arrays])
    packer = Packer()
    trees = [packer.piece(piece) for piece in pieces]
    found = Unpacker(packer.tensors())
    return [found.piece(tree) for tree in trees]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_bit_by_bit(dtype: Any) -> None:
    shapes = [(1, 2, 5, 3), (1, 2, 5, 3), (1, 7), (1, 1, 1, 1)]
    arrays = [random_bits(shape, dtype, seed) for seed, shape in enumerate(shapes)]
    piece = Piece(3, 8, slots=tuple(arrays[:2]), state=(arrays[2], None, arrays[3]))
    [back] = through_bytes([piece])
    assert same(back, piece)


def test_trees_of_every_shape_come_back_together() -> None:
    slots = (random_bits((1, 2, 4, 3), mx.float32, 1), random_bits((1, 2, 4, 5), mx.bfloat16, 2))
    state = (random_bits((1, 6), mx.float16, 3), None)
    inner = Piece(0, 4, slots=slots)
    pieces = [
        inner,
        Piece(0, 4, whole=False),
        Piece(0, 4, state=state),
        Piece(0, 4, whole=False, parts=(inner, Piece(0, 4, state=state, whole=False))),
        Piece(0, 0),
        Piece(0, 9, slots=slots, gap=True),
        Piece(0, 4, slots=slots, parts=(Piece(0, 4, parts=(inner,)),)),
    ]
    assert all(map(same, through_bytes(pieces), pieces))


def test_the_bytes_are_nobodys_array() -> None:
    array = mx.zeros((1, 1, 4, 2))
    packer = Packer()
    where = packer.array(array)
    [tensor] = packer.tensors()
    array[...] = 5.0
    mx.eval(array)
    back = Unpacker([tensor]).array(where)
    assert mx.max(back).item() == 0.0
    back[...] = 7.0
    mx.eval(back)
    assert set(bytes(tensor.data)) == {0}


@pytest.mark.parametrize("make", [RowCache, lambda: WindowCache(1, 1000)])
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float32], ids=str)
def test_slots_stay_where_the_bytes_lie_and_a_row_filled_with_them_writes_elsewhere(
    make: Any, dtype: Any
) -> None:
    slots = (random_bits((1, 2, 4, 3), dtype, 1), random_bits((1, 2, 4, 3), dtype, 2))
    packer = Packer()
    tree = packer.piece(Piece(0, 4, slots=slots))
    tensors = packer.tensors()
    before = [bytes(tensor.data) for tensor in tensors]
    piece = Unpacker(tensors).piece(tree)
    for own in piece.slots:
        assert any(np.shares_memory(on_host(own), np.frombuffer(tensor.data, np.uint8)) for tensor in tensors)
    layer = make()
    fill(layer, [piece])
    assert [bits(mx.contiguous(array[:, :, :4])) for array in layer.state] == [bits(array) for array in slots]
    for array in (layer.keys, layer.values):
        array[...] = 7.0
        mx.eval(array)
    assert [bytes(tensor.data) for tensor in tensors] == before


def test_arrays_of_one_shape_lie_in_one_tensor() -> None:
    packer = Packer()
    for _ in range(6):
        packer.array(mx.zeros((1, 2, 4, 3)))
    packer.array(mx.zeros((1, 2, 4, 3), mx.bfloat16))
    assert [(one.dtype, one.shape) for one in packer.tensors()] == [
        ("float32", (6, 1, 2, 4, 3)),
        ("bfloat16", (1, 1, 2, 4, 3)),
    ]


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {},
        {"span": [0], "whole": True, "gap": False, "slots": [], "state": [], "parts": []},
        {"span": [0, 1], "whole": 1, "gap": False, "slots": [], "state": [], "parts": []},
        {"span": [0, 1], "whole": True, "gap": False, "slots": [[0, 9]], "state": [], "parts": []},
        {"span": [0, 1], "whole": True, "gap": False, "slots": [[3, 0]], "state": [], "parts": []},
        {"span": [0, 1], "whole": True, "gap": False, "slots": [None], "state": [], "parts": []},
        {"span": [0, 1], "whole": True, "gap": False, "slots": [], "state": [], "parts": [7]},
    ],
)
def test_what_no_packer_made_is_refused(tree: JSON) -> None:
    packer = Packer()
    packer.array(mx.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"is not one|no array lies"):
        Unpacker(packer.tensors()).piece(tree)


@pytest.mark.parametrize("meta", [{}, {"form": 0}, {"form": "1"}])
def test_another_form_is_refused(meta: dict[str, JSON]) -> None:
    with pytest.raises(ValueError, match="form"):
        check_form(meta)


def test_numbers_of_an_unknown_kind_are_not_kept() -> None:
    with pytest.raises(ValueError, match="cannot be kept"):
        Packer().array(mx.zeros((1,), mx.complex64))
