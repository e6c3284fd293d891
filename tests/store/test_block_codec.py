"""Frames come back to the bit whatever is in them, and numbers like those of a cache take fewer bytes."""

from __future__ import annotations

import numpy as np
import pytest
from mtplxd.store import codec
from mtplxd.store.blocks import WIDTHS
from mtplxd.store.exponents import Exponents, Nibbles, Tiles

SIZES = [1, 2, 3, 7, 2047, 2048, 2049, 40000]
DRAW = np.random.default_rng(1)


def back(raw: bytes, dtype: str, level: int) -> tuple[bytes, int, int]:
    how, stored = codec.pack(raw, dtype, level)
    target = bytearray(len(raw))
    codec.unpack(how, bytes(stored), dtype, memoryview(target))
    return bytes(target), len(stored), how


def bfloat(numbers: np.ndarray) -> bytes:
    return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()


@pytest.mark.parametrize("level", [codec.FAST, codec.TIGHT])
@pytest.mark.parametrize("dtype", sorted(WIDTHS))
@pytest.mark.parametrize("count", SIZES)
def test_noise_of_any_dtype_and_size_comes_back(dtype: str, count: int, level: int) -> None:
    raw = DRAW.bytes(count * WIDTHS[dtype])
    read, stored, _ = back(raw, dtype, level)
    assert read == raw
    assert stored <= len(raw)


@pytest.mark.parametrize("level", [codec.FAST, codec.TIGHT])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float16", "uint8"])
@pytest.mark.parametrize("kind", ["zeros", "same", "ramp", "half zeros"])
def test_regular_numbers_come_back_and_take_next_to_nothing(dtype: str, kind: str, level: int) -> None:
    width, count = WIDTHS[dtype], 30000
    raw = {
        "zeros": bytes(width * count),
        "same": DRAW.bytes(width) * count,
        "ramp": bytes(range(256)) * (width * count // 256),
        "half zeros": bytes(width * count // 2) + DRAW.bytes(width * count // 2),
    }[kind]
    read, stored, _ = back(raw, dtype, level)
    assert read == raw
    most = 0.03 if kind != "half zeros" else 0.56 if dtype in ("float16", "uint8") else 0.82
    assert stored < most * len(raw)


@pytest.mark.parametrize("special", [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1e-39, 3.4e38, -1.0])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_special_numbers_among_others_come_back(dtype: str, special: float) -> None:
    numbers = DRAW.normal(size=9001).astype(np.float32)
    numbers[DRAW.integers(9001, size=300)] = special
    raw = bfloat(numbers) if dtype == "bfloat16" else numbers.tobytes()
    assert back(raw, dtype, codec.FAST)[0] == raw


@pytest.mark.parametrize("way", [Nibbles(), Tiles()])
@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 128 * 64 - 1, 128 * 64, 128 * 64 + 1, 50000])
def test_exponents_come_back_from_their_planes(count: int, way: Exponents) -> None:
    for exponents in (DRAW.integers(256, size=count), DRAW.integers(120, 130, size=count), np.zeros(count)):
        planes = way.split(exponents.astype(np.uint8))
        assert [len(plane) for plane in planes] == way.lengths(count)
        assert (way.join(planes, count) == exponents).all()


def test_every_pattern_of_sixteen_bits_comes_back() -> None:
    raw = np.arange(1 << 16, dtype=np.uint16).tobytes()
    assert back(raw, "bfloat16", codec.FAST)[0] == raw
    assert back(raw, "bfloat16", codec.TIGHT)[0] == raw


def test_every_exponent_and_both_signs_come_back_of_float32() -> None:
    numbers = (np.arange(512, dtype=np.uint32) << 23).repeat(32) | DRAW.integers(
        1 << 23, size=512 * 32, dtype=np.uint32
    )
    assert back(numbers.tobytes(), "float32", codec.FAST)[0] == numbers.tobytes()


@pytest.mark.parametrize("level", [codec.FAST, codec.TIGHT])
def test_numbers_like_those_of_a_cache_take_three_quarters_as_bfloat16_or_less(level: int) -> None:
    scales = np.exp(DRAW.normal(size=(3, 1, 64)))
    numbers = (DRAW.normal(size=(3, 256, 64)) * scales).astype(np.float32)
    raw = bfloat(numbers)
    read, stored, how = back(raw, "bfloat16", level)
    assert read == raw
    assert how == (codec.TILES if level else codec.NIBBLES)
    assert stored <= (0.73 if level else 0.78) * len(raw)
    assert back(numbers.tobytes(), "float32", level)[1] <= 0.89 * numbers.nbytes


def test_the_tight_level_is_never_larger() -> None:
    for raw in (bfloat(DRAW.normal(size=20000)), bytes(20000), DRAW.bytes(20000), b"abcd" * 5000):
        assert back(raw, "bfloat16", codec.TIGHT)[1] <= back(raw, "bfloat16", codec.FAST)[1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "uint8"])
def test_what_was_never_packed_is_refused_or_fills_just_the_target(dtype: str) -> None:
    raw = bfloat(DRAW.normal(size=6000))
    how, stored = codec.pack(raw, dtype, codec.FAST)
    good = bytes(stored)
    for bad in (b"", good[:-1], good[: len(good) // 2], good + b"x", bytes(len(good)), DRAW.bytes(len(good))):
        target = bytearray(len(raw))
        for other in (codec.RAW, codec.PLAIN, codec.ZERO, codec.NIBBLES, codec.TILES):
            try:
                codec.unpack(other, bad, dtype, memoryview(target))
            except ValueError:
                continue
            assert len(target) == len(raw)
    with pytest.raises(ValueError, match="packing 9"):
        codec.unpack(9, good, dtype, memoryview(bytearray(len(raw))))
    assert how in (codec.RAW, codec.PLAIN, codec.NIBBLES)


@pytest.mark.parametrize("wrong", [-1, 1])
def test_another_length_is_refused(wrong: int) -> None:
    for raw, dtype in (
        (bfloat(DRAW.normal(size=6000)), "bfloat16"),
        (b"ab" * 4500, "uint8"),
        (DRAW.bytes(9000), "uint8"),
    ):
        how, stored = codec.pack(raw, dtype, codec.FAST)
        with pytest.raises(ValueError, match=r"bytes instead of|LZ4"):
            codec.unpack(how, bytes(stored), dtype, memoryview(bytearray(len(raw) + 2 * wrong)))
