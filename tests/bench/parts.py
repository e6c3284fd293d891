"""Runs the commands that a full count consists of, one after the other. What each does is its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def run_parts(parts: Mapping[str, Iterable[str]]) -> int:
    """Each `name.py` beside this file with its options; 1 where one fails, once all have run."""
    failed = []
    for part, options in parts.items():
        print(f"{part}:", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(f"{part}.py")), *options]
        if subprocess.run(command, check=False).returncode:
            failed.append(part)
    if failed:
        print(f"error: not reached ({', '.join(failed)}): see above", file=sys.stderr)
    return 1 if failed else 0
