"""How a vocabulary spells bytes: byte-level BPE's stand-in characters, byte-fallback's `<0xE2>`, `▁` for a space.

It reads a tokenizer's decoder and turns one token's spelling into its bytes; joining tokens to text is not its duty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_FALLBACK = re.compile("<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character of each byte, and back."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    shifted = iter(range(256, 512))
    return {chr(byte if byte in printable else next(shifted)): byte for byte in range(256)}


_BYTES = _byte_alphabet()


@dataclass(frozen=True)
class Spelling:
    """One vocabulary's conventions. `replaced` are (written, meant) pairs, in order."""

    byte_level: bool = False
    byte_fallback: bool = False
    replaced: tuple[tuple[str, str], ...] = ()

    def bytes_of(self, text: str) -> bytes:
        """The bytes that a token written `text` stands for."""
        if self.byte_fallback and (byte := _FALLBACK.fullmatch(text)):
            return bytes([int(byte[1], 16)])
        if self.byte_level:
            return b"".join(bytes([_BYTES[c]]) if c in _BYTES else c.encode() for c in text)
        for written, meant in self.replaced:
            text = text.replace(written, meant)
        return text.encode()


def read_spelling(decoder: Any) -> Spelling:
    """The conventions of a tokenizers decoder (None for none)."""
    if decoder is None:
        return Spelling()
    steps = list(_flatten(json.loads(decoder.__getstate__())))
    kinds = {step.get("type") for step in steps}
    replaced = [pair for step in steps if (pair := _replacement(step))]
    return Spelling("ByteLevel" in kinds, "ByteFallback" in kinds, tuple(replaced))


def _flatten(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    inner = step.get("decoders")
    if isinstance(inner, list):
        for one in inner:
            yield from _flatten(one)
    else:
        yield step


def _replacement(step: dict[str, Any]) -> tuple[str, str] | None:
    if step.get("type") == "Metaspace":
        return str(step.get("replacement", "▁")), " "
    pattern = step.get("pattern")
    written = pattern.get("String") if step.get("type") == "Replace" and isinstance(pattern, dict) else None
    return (str(written), str(step.get("content", ""))) if written else None
