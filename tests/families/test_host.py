"""Arrays on the host: the same bits in every dtype, room that is zero where nothing was put, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from mtplxd.families.host import Room, from_host, on_host
from mtplxd.platform.mlx import mx

DTYPES = ["bfloat16", "float16", "float32", "int8", "uint32"]


def numbers(dtype: str, *shape: int) -> mx.array:
    made = mx.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(getattr(mx, dtype))
    mx.eval(made)
    return made


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_comes_back_with_the_bits_it_had(dtype: str) -> None:
    array = numbers(dtype, 2, 3)
    again = from_host(on_host(array).copy(), array.dtype)
    assert again.dtype == array.dtype
    assert mx.array_equal(again, array)


def test_what_is_seen_on_the_host_is_no_copy() -> None:
    array = numbers("float32", 4)
    assert np.shares_memory(on_host(array), on_host(array))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_parts_lie_where_they_were_put_and_the_rest_is_zero(dtype: str) -> None:
    room = Room((1, 2, 8, 3), getattr(mx, dtype))
    first, second = numbers(dtype, 1, 2, 2, 3), numbers(dtype, 1, 2, 3, 3)
    room.put(second, 2)
    room.put(first, 0)
    found = room.array()
    assert found.shape == (1, 2, 8, 3)
    assert mx.array_equal(found[:, :, :2], first)
    assert mx.array_equal(found[:, :, 2:5], second)
    assert not found[:, :, 5:].any()


def test_nothing_is_put_into_an_array_that_was_given_away() -> None:
    room = Room((1, 1, 2, 1), mx.float32)
    given = room.array()
    with pytest.raises(ValueError, match="could not broadcast"):
        room.put(numbers("float32", 1, 1, 2, 1), 0)
    assert not given.any()


@pytest.mark.parametrize("part", [numbers("float16", 1, 2, 2, 3), numbers("float32", 1, 2, 2, 4)])
def test_numbers_of_another_kind_are_refused(part: mx.array) -> None:
    with pytest.raises(ValueError, match=r"float16 among|could not broadcast"):
        Room((1, 2, 8, 3), mx.float32).put(part, 0)


def test_a_part_that_reaches_beyond_is_refused() -> None:
    with pytest.raises(ValueError, match="could not broadcast"):
        Room((1, 2, 8, 3), mx.float32).put(numbers("float32", 1, 2, 2, 3), 7)
