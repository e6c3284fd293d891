"""Runs the system's own tools: by absolute path, with a time limit, in the C locale. Judges nothing they say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtplxd.errors import FailedPrecondition, Unavailable

LIMIT_S = 60.0


@dataclass(frozen=True)
class Said:
    """What a tool answered."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Its complaint in one line."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return f"exit {self.code}, {lines[0] if lines else 'no message'}"


def run_tool(command: Sequence[str], env: Mapping[str, str] | None = None) -> Said:
    """Runs one command to its end. Raises FailedPrecondition where the tool is absent, Unavailable where it hangs."""
    try:
        ended = subprocess.run(
            list(command),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", **(env or {})},
        )
    except subprocess.TimeoutExpired:
        raise Unavailable("a system tool does not answer", " ".join(command), "try again") from None
    except OSError as error:
        raise FailedPrecondition("cannot run a system tool", command[0], error.strerror or "") from None
    return Said(ended.returncode, ended.stdout, ended.stderr)
