"""Overwrites weights of a checkpoint, so that it computes what it should not."""

from __future__ import annotations

import json
from pathlib import Path

OVERFLOWING, NEGATIVE = 0x7F7F, 0xBF80
"""bfloat16 bits: the largest number there is, whose products are infinite, and −1.

A head whose last norm is negative drafts what is least likely.
"""


def fill_tensor(path: Path, tensor: str, bits: int) -> None:
    """Overwrites a bfloat16 tensor of a safetensors file with one value."""
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[:8], "little")
    begin, end = json.loads(content[8 : 8 + size])[tensor]["data_offsets"]
    content[8 + size + begin : 8 + size + end] = bits.to_bytes(2, "little") * ((end - begin) // 2)
    path.write_bytes(content)
