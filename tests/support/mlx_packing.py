"""MLX's affine packing undone in numpy, from its definition: w = scale · q + bias, q of `bits` bits, lowest first."""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, Any]


def unpack_words(words: Floats, bits: int, width: int) -> Floats:
    """The whole numbers [..., width] in rows of 32-bit words [..., width · bits / 32]."""
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    digits = stream[..., : width * bits].reshape(*words.shape[:-1], width, bits)
    return (digits.astype(np.int64) << np.arange(bits)).sum(axis=-1)


def unpack_matrix(words: Floats, scales: Floats, biases: Floats, bits: int) -> Floats:
    """Values [..., width] of a packed matrix."""
    steps, offsets = _by_column(words, scales, biases, bits)
    return unpack_words(words, bits, steps.shape[-1]) * steps + offsets


def nearest_values(wanted: Floats, words: Floats, scales: Floats, biases: Floats, bits: int) -> Floats:
    """Of the values that each group's scale and bias allow, the nearest to `wanted` [..., width]."""
    steps, offsets = _by_column(words, scales, biases, bits)
    return np.clip(np.round((wanted - offsets) / steps), 0, 2**bits - 1) * steps + offsets


def _by_column(words: Floats, scales: Floats, biases: Floats, bits: int) -> tuple[Floats, Floats]:
    group = words.shape[-1] * 32 // bits // scales.shape[-1]
    return np.repeat(scales, group, axis=-1), np.repeat(biases, group, axis=-1)
