"""Byte-level BPE as GPT-2 and SmolLM2 define it, written from the definition; reference for tests."""

from __future__ import annotations

from itertools import pairwise

import regex
from support.tiny_gguf import byte_symbols

_WORDS = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
_SYMBOLS = byte_symbols()


class ReferenceBpe:
    """Ids of a text: special tokens first, then single digits, then words, then merges by rank."""

    def __init__(self, vocab: dict[str, int], merges: list[tuple[str, str]], special: list[str]) -> None:
        self._vocab, self._special = vocab, special
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}

    def encode(self, text: str) -> list[int]:
        cut = regex.split(f"({'|'.join(map(regex.escape, self._special))})", text)
        ids: list[int] = []
        for part in cut:
            ids += [self._vocab[part]] if part in self._special else self._encode_plain(part)
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        pieces = [piece for piece in regex.split(r"(\p{N})", text) if piece]
        words = [word for piece in pieces for word in _WORDS.findall(piece)]
        return [self._vocab[part] for word in words for part in self._merge(word)]

    def _merge(self, word: str) -> list[str]:
        parts = [_SYMBOLS[byte] for byte in word.encode()]
        while True:
            pairs = [(self._ranks.get(pair, -1), at) for at, pair in enumerate(pairwise(parts))]
            known = [pair for pair in pairs if pair[0] >= 0]
            if not known:
                return parts
            _, at = min(known)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
