"""Reads what the user types in a chat: line history, and messages of several lines.

Owns the history file (1,000 lines, readable by its owner alone). A line that ends in a backslash goes on; a
message that begins with three double quotes goes on until three more.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from mtplxd.paths import Home

from mtplx_client.cli.stdin import checked, utf8

HISTORY_LINES = 1000
QUOTES = '"""'
FIRST, MORE = "> ", "… "


class LineInput:
    """A source of messages; without a terminal it reads standard input and prompts nobody."""

    def __init__(self, home: Home) -> None:
        self._file = home.root / "chat_history"
        self._readline: Any = None
        self.interactive = sys.stdin.isatty()

    def __enter__(self) -> LineInput:
        if self.interactive:
            with contextlib.suppress(ImportError):
                import readline

                self._readline = readline
                readline.set_history_length(HISTORY_LINES)
                with contextlib.suppress(OSError):
                    readline.read_history_file(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._readline is not None:
            with contextlib.suppress(OSError):
                _make_private(self._file)
                self._readline.write_history_file(self._file)
                self._file.chmod(0o600)

    def message(self) -> str:
        """The next message. Raises EOFError at the end and KeyboardInterrupt as typed."""
        return join_message(self._line)

    def _line(self, prompt: str) -> str:
        if self.interactive:
            return checked(input(prompt))
        data = sys.stdin.buffer.readline()
        if not data:
            raise EOFError
        return utf8(data, "standard input").rstrip("\r\n")


def join_message(read_line: Callable[[str], str]) -> str:
    """One message out of as many lines as it takes; `read_line` gets the prompt to show."""
    line = read_line(FIRST)
    if line.lstrip().startswith(QUOTES):
        return _quoted(line.lstrip().removeprefix(QUOTES), read_line)
    parts = []
    while line.endswith("\\"):
        parts.append(line[:-1])
        line = read_line(MORE)
    return "\n".join([*parts, line])


def _quoted(line: str, read_line: Callable[[str], str]) -> str:
    parts = []
    while not line.rstrip().endswith(QUOTES):
        parts.append(line)
        line = read_line(MORE)
    parts.append(line.rstrip().removesuffix(QUOTES))
    return "\n".join(parts).strip("\n")


def _make_private(file: Path) -> None:
    """Make the file for its owner alone before anything is written into it."""
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
