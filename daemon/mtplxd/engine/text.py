"""Ids to text as they come: whole characters only, nothing that may yet turn out to be a stop string. One request's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TextStream:
    """Turns ids into text deltas. The deltas joined equal the text decoded at once, cut before the stop string."""

    def __init__(self, tokenizer: Any, stops: Sequence[str] = ()) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._stops = tuple(stops)
        self._ids: list[int] = []
        self._stepped = 0
        self._decoded = ""
        self._sent = 0
        self._end: int | None = None

    def push(self, token: int) -> bool:
        """Takes the next id; True when it completes a stop string.

        Without stop strings nothing is decoded before somebody takes it, so that a round need not wait for it.
        """
        self._ids.append(token)
        if not self._stops:
            return False
        searched_from = len(self._decoded)
        return self._decode() and self._find_stop(searched_from)

    def take(self) -> str:
        """The text that became certain since the last call."""
        self._decode()
        end = self._end if self._end is not None else len(self._decoded) - self._held_back()
        taken, self._sent = self._decoded[self._sent : end], max(self._sent, end)
        return taken

    def finish(self) -> str:
        """The rest, once no more ids come: what was held back, and characters that stayed incomplete."""
        if self._end is None:
            self._decode()
            whole = self._tokenizer.decode(self._ids)
            if whole.startswith(self._decoded):
                self._decoded = whole
            self._find_stop(self._sent)
            self._stops = ()
        return self.take()

    def _decode(self) -> bool:
        """Decodes the ids that were pushed since; True when they gave text."""
        before = len(self._decoded)
        while self._stepped < len(self._ids):
            self._decoded += self._stream.step(self._tokenizer.backend, self._ids[self._stepped]) or ""
            self._stepped += 1
        return len(self._decoded) > before

    def _find_stop(self, searched_from: int) -> bool:
        """Looks for the earliest stop string that ends after `searched_from`."""
        begins = []
        for stop in self._stops:
            begin = self._decoded.find(stop, max(self._sent, searched_from - len(stop) + 1))
            if begin >= 0:
                begins.append(begin)
        if begins:
            self._end = min(begins)
        return bool(begins)

    def _held_back(self) -> int:
        """Length of the longest tail that a stop string could continue."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._decoded) - self._sent), longest, -1):
                if self._decoded.endswith(stop[:size]):
                    longest = size
                    break
        return longest
