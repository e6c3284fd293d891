"""Which Python root runs the helper under: one of the system's, all of it root's own, asked where it reads from.

What a path must be is `trust`'s.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplxd.errors import FailedPrecondition

from mtplx_launchd.helper.trust import Trust

ISOLATED = ("-I", "-S", "-B")
CANDIDATES = (
    "/usr/bin/python3",
    "/Library/Developer/CommandLineTools/usr/bin/python3",
    "/Applications/Xcode.app/Contents/Developer/usr/bin/python3",
)
OLDEST = (3, 9)
PATIENCE_S = 30.0
_PROBE = """
import argparse, ctypes, json, os, selectors, socket, sys
loaded = []
if sys.platform == "darwin":
    system = ctypes.CDLL(None)
    system._dyld_get_image_name.restype = ctypes.c_char_p
    loaded = [os.fsdecode(system._dyld_get_image_name(at)) for at in range(system._dyld_image_count())]
elif os.path.exists("/proc/self/maps"):
    loaded = [line.split(None, 5)[5].rstrip() for line in open("/proc/self/maps") if line.count("/")]
print(json.dumps({"version": sys.version_info[:2], "executable": os.path.realpath(sys.executable),
                  "path": sys.path, "loaded": sorted({name for name in loaded if name.startswith("/")})}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that may run as root; `executable` is no link."""

    executable: Path
    version: tuple[int, int]


def choose_interpreter(
    asked: str | None, trust: Trust, candidates: Sequence[str] = CANDIDATES
) -> Interpreter:
    """The one that was asked for, as it is written; else the first of the system's that is safe. Raises
    FailedPrecondition naming the path that is not.
    """
    if asked is not None:
        return check_interpreter(Path(os.path.abspath(asked)), trust)
    troubles: list[str] = []
    for candidate in candidates:
        if not os.path.exists(candidate):
            continue
        try:
            return check_interpreter(Path(os.path.realpath(candidate)), trust)
        except FailedPrecondition as error:
            troubles.append(str(error))
    fix = "install your system's python3, or give --interpreter PATH"
    raise FailedPrecondition(
        "no Python that is safe to run as root", "; ".join(troubles) or "none found", fix
    )


def check_interpreter(path: Path, trust: Trust) -> Interpreter:
    """The executable first, which then tells where it reads from: the standard library, whole, and every library that
    is loaded. Raises FailedPrecondition.
    """
    trust.check(path)
    told = _ask(path)
    version = (int(told["version"][0]), int(told["version"][1]))
    if version < OLDEST:
        raise FailedPrecondition(
            "this Python is too old", f"{path}, {version[0]}.{version[1]}", "give 3.9 or newer"
        )
    if Path(told["executable"]) != path:  # a shim, such as Xcode's
        return check_interpreter(Path(told["executable"]), trust)
    for entry in told["path"]:
        place = Path(os.path.realpath(entry))
        if place.is_dir():
            trust.check_tree(place)
        else:
            trust.check_place(place)
    for name in told["loaded"]:
        place = Path(os.path.realpath(name))
        if place.exists():  # what macOS keeps in its shared cache is no file
            trust.check(place)
    return Interpreter(path, version)


def _ask(path: Path) -> dict[str, Any]:
    """Runs it as the user who asks, never as root's own choice of code."""
    command = [str(path), *ISOLATED, "-c", _PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        raise FailedPrecondition(
            "this Python does not run", path, "give --interpreter PATH of another"
        ) from None
    assert isinstance(found, dict)
    return found
