"""Safetensors files of numpy arrays as checkpoints store them: bfloat16, FP8 blocks with scales, float32, int64."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BLOCK = 128
_LARGEST = 448.0


@dataclass(frozen=True)
class Stored:
    """Bytes of one tensor under their safetensors dtype."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


Files = Mapping[str, Mapping[str, Stored]]
"""By file name, the tensors in it."""


def store(array: np.ndarray, dtype: str = "BF16") -> Stored:
    """Floats as `dtype` (BF16, F16 or F32), integers as int64."""
    array = np.ascontiguousarray(array)
    if array.dtype.kind in "iu":
        return Stored("I64", array.shape, array.astype(np.int64).tobytes())
    kinds = {
        "BF16": to_bfloat16,
        "F16": lambda a: a.astype(np.float16),
        "F32": lambda a: a.astype(np.float32),
    }
    return Stored(dtype, array.shape, kinds[dtype](array).tobytes())


def store_blocks(array: np.ndarray) -> tuple[Stored, Stored]:
    """A matrix as FP8 with a float32 scale for each block of 128 by 128: weight and scales."""
    rows, columns = array.shape
    padded = np.zeros((-(-rows // BLOCK) * BLOCK, -(-columns // BLOCK) * BLOCK), np.float32)
    padded[:rows, :columns] = array
    blocks = padded.reshape(padded.shape[0] // BLOCK, BLOCK, padded.shape[1] // BLOCK, BLOCK)
    scales = np.maximum(np.abs(blocks).max(axis=(1, 3)), 1e-8).astype(np.float32) / np.float32(_LARGEST)
    codes = _to_fp8(blocks / scales[:, None, :, None]).reshape(padded.shape)[:rows, :columns]
    weight = Stored("F8_E4M3", (rows, columns), np.ascontiguousarray(codes).tobytes())
    return weight, Stored("F32", scales.shape, scales.tobytes())


def write_tensors(path: Path, tensors: Mapping[str, Stored]) -> None:
    """One safetensors file, tensors in the order of their names."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in sorted(tensors):
        one = tensors[name]
        end = at + len(one.data)
        header[name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    body = b"".join(tensors[name].data for name in sorted(tensors))
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor of every safetensors file under a folder, floats as float32, FP8 blocks times their scales."""
    found: dict[str, np.ndarray] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        found |= _read_file(path)
    for name in [name for name in found if name.endswith("_scale_inv")]:
        scales, weight = found.pop(name), found[name.removesuffix("_scale_inv")]
        spread = np.repeat(np.repeat(scales, BLOCK, axis=0), BLOCK, axis=1)
        found[name.removesuffix("_scale_inv")] = weight * spread[: weight.shape[0], : weight.shape[1]]
    return found


def _read_file(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        low, high = entry["data_offsets"]
        data = raw[begin + low : begin + high]
        found[name] = _decode(entry["dtype"], data).reshape(entry["shape"])
    return found


def _decode(dtype: str, data: bytes) -> np.ndarray:
    if dtype == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype == "F8_E4M3":
        return _fp8_values()[np.frombuffer(data, np.uint8)]
    kinds = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "U32": np.uint32}
    array = np.frombuffer(data, kinds[dtype])
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """Bits of the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _fp8_values() -> np.ndarray:
    """What each of the 256 codes of E4M3 stands for; its two NaN codes as NaN."""
    codes = np.arange(256)
    exponent, fraction = (codes >> 3) & 15, codes & 7
    small = fraction / 8.0 * 2.0**-6
    values = np.where(exponent == 0, small, (1 + fraction / 8.0) * 2.0 ** (exponent - 7.0))
    values = np.where((exponent == 15) & (fraction == 7), np.nan, values)
    return np.where(codes & 128, -values, values).astype(np.float32)


def _to_fp8(array: np.ndarray) -> np.ndarray:
    """The nearest code of each value, which lies within ±448."""
    positive = _fp8_values()[:127]
    places = np.abs(array)
    above = np.clip(np.searchsorted(positive, places), 1, 126)
    lower = places - positive[above - 1] < positive[above] - places
    codes = np.where(lower, above - 1, above).astype(np.uint8)
    return np.where(array < 0, codes | 128, codes).astype(np.uint8)
