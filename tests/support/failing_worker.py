"""A worker that gives up at once, with the error that its argument names."""

from __future__ import annotations

import sys

from mtplxd.errors import InvalidArgument, MtplxError, NotFound, ResourceExhausted, UnsupportedSource
from mtplxd.packs.workers import say_error

ERRORS: dict[str, MtplxError] = {
    "asked": InvalidArgument("no layer fits", "nothere", "leave it out", field="overrides"),
    "full": ResourceExhausted("the disk is full", "/home/ada", "free some", needed=9, available=2),
    "missing": NotFound("no such repository", "org/name", "check the name"),
    "strange": UnsupportedSource("no model in it", "org/name", "choose another"),
}

if __name__ == "__main__":
    say_error(ERRORS[sys.argv[1]])
    sys.exit(1)
