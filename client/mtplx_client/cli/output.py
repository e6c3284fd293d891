"""Where lines go: results to stdout, remarks and errors to stderr, with --json one document or a stream.

Owns the form of JSON and of error lines, not what is in them.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from typing import Any

from mtplxd.errors import MtplxError, ResourceExhausted

_CONTROLS = re.compile("(\x1b\\[[0-9;]*m)|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that steer a terminal. Colours are ours; all others come from a file or a name and are shown, not sent."""

_CLEAR = "\x1b[H\x1b[2J"


class Output:
    """The two streams of one run. A stream of events has one last line: `final`, or an error before it."""

    def __init__(self, json: bool = False) -> None:
        self.json = json
        self._streaming = False
        self._ended = False

    def line(self, text: str = "") -> None:
        """A line of the result, for people."""
        sys.stdout.write(_shown(text) + "\n")

    def page(self, text: str) -> None:
        """A result that takes the place of the one before: on a terminal; elsewhere it follows it."""
        sys.stdout.write((_CLEAR if sys.stdout.isatty() else "") + _shown(text) + "\n\n")
        sys.stdout.flush()

    def text(self, text: str) -> None:
        """A piece of the result as it arrives."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """A remark that is no result."""
        with contextlib.suppress(OSError):  # a remark that nobody can read must not stop the work
            sys.stderr.write(_shown(text) + "\n")
            sys.stderr.flush()

    def document(self, fields: dict[str, Any]) -> None:
        """The one document of a command."""
        self._write(fields)

    def event(self, fields: dict[str, Any]) -> None:
        """One event of a stream."""
        self._streaming = True
        self._write({"final": False, **fields})

    def final(self, fields: dict[str, Any]) -> None:
        """The last event of a stream."""
        self._ended = True
        self._write({**fields, "final": True})

    def error(self, error: MtplxError) -> None:
        """One line on stderr, and with --json a document on stdout."""
        self.note(f"error: {error}".replace("\n", " "))
        if self.json and not self._ended:
            fields = error_fields(error)
            self._write({**fields, "final": True} if self._streaming else fields)

    def _write(self, fields: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(_finite(fields), ensure_ascii=False, allow_nan=False) + "\n")
        sys.stdout.flush()


def error_fields(error: MtplxError) -> dict[str, Any]:
    """The JSON form of an error; `retry_after_s` only where the daemon names a time."""
    value = "" if error.value is None else f" ({error.value})"
    fields: dict[str, Any] = {"code": error.code, "message": f"{error.what}{value}", "fix": error.fix}
    if isinstance(error, ResourceExhausted) and error.retry_after_s > 0:
        fields["retry_after_s"] = error.retry_after_s
    return {"error": fields}


def _shown(text: str) -> str:
    return _CONTROLS.sub(lambda found: found[1] or f"\\x{ord(found[0]):02x}", text)


def _finite(value: Any) -> Any:
    """`value` with null for numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
