"""The helper's line protocol: one short line a request, one line of JSON a reply. Pure; who may ask is `server`'s.

    fan/1 status
    fan/1 hold SECONDS     takes or renews this connection's lease
    fan/1 release          gives it back

A request that is anything else is refused with a code, and nothing is done.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

VERSION = 1
LINE_CAP = 128
"""Bytes of a request, its newline not counted; a longer one ends the connection."""
REPLY_CAP = 8192
SHORTEST_LEASE_S, LONGEST_LEASE_S = 0.1, 30.0

_LINE = re.compile(rb"fan/(\d{1,4}) ([a-z]{1,16})(?: (\d{1,4}(?:\.\d{1,3})?))?\r?")


@dataclass(frozen=True)
class Request:
    """What a client asks for: `status`, `hold` (with seconds) or `release`."""

    verb: str
    seconds: float = 0.0


class BadLine(Exception):
    """A line that is no request of this version; `code` is for programs, the text for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Lines:
    """Cuts what comes in into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now. Raises BadLine as soon as one is too long; the connection is of no use then."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if any(len(line) > LINE_CAP for line in (*lines, self._rest)):
            raise BadLine("too-long", f"a request has at most {LINE_CAP} bytes")
        return lines


def parse(line: bytes) -> Request:
    """The request in a line. Raises BadLine."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise BadLine("bad-line", "a request reads `fan/1 status`, `fan/1 hold SECONDS` or `fan/1 release`")
    version, verb, number = int(found[1]), found[2].decode(), found[3]
    if version != VERSION:
        raise BadLine(
            "bad-version", f"this helper speaks version {VERSION}: install it again from the daemon's side"
        )
    if verb in ("status", "release") and number is None:
        return Request(verb)
    if verb != "hold" or number is None:
        raise BadLine("bad-request", "known: status, hold SECONDS, release")
    seconds = float(number)
    if not SHORTEST_LEASE_S <= seconds <= LONGEST_LEASE_S:
        raise BadLine("bad-lease", f"a lease lasts {SHORTEST_LEASE_S:g} to {LONGEST_LEASE_S:g} seconds")
    return Request("hold", seconds)


def say(request: Request) -> bytes:
    """A request as a line, for clients."""
    words = f"fan/{VERSION} {request.verb}"
    return (f"{words} {request.seconds:.3f}\n" if request.verb == "hold" else f"{words}\n").encode()


def reply(**fields: object) -> bytes:
    """An answer as a line."""
    return json.dumps({"v": VERSION, "ok": True, **fields}, separators=(",", ":")).encode() + b"\n"


def refusal(code: str, text: str) -> bytes:
    """A refusal as a line."""
    return reply(ok=False, error=code, message=text)
