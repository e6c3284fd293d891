"""Facts for the doctor: asked of a child process that imports the daemon's own platform code, so that a
library that cannot be imported, or crashes, is a fact and no failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

_LIMIT_S = 60.0
_SCRIPTS = {
    "machine": (
        "from dataclasses import asdict; from mtplxd.platform.machine import read_machine;"
        "found = asdict(read_machine())"
    ),
    "blas": (
        "from dataclasses import asdict; from mtplxd.platform.blas import load_blas, request_blas;"
        "request_blas(sys.argv[1]); found = asdict(load_blas())"
    ),
    "privacy": (
        "from pathlib import Path; from mtplxd.platform.privacy import look;"
        "seen = look(Path(sys.argv[1])); found = {'troubles': list(seen.troubles)}"
    ),
    "mlx": (
        "from importlib.metadata import version; from mtplxd.platform.mlx import mx;"
        "found = {'version': version('mlx'), 'device': str(mx.default_device())}"
    ),
}


@dataclass(frozen=True)
class Probe:
    """What a child found, or in `error` the last line of what it complained."""

    found: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def probe(name: str, argument: str = "") -> Probe:
    """Run the probe `machine`, `blas`, `privacy` or `mlx` in a child process."""
    script = f"import json, sys; {_SCRIPTS[name]}; print(json.dumps(found))"
    try:
        child = subprocess.run(
            [sys.executable, "-c", script, argument],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Probe(error=str(error).splitlines()[0])
    if child.returncode != 0:
        said = child.stderr.strip().splitlines()
        return Probe(error=said[-1] if said else f"exit status {child.returncode}")
    return Probe(json.loads(child.stdout.splitlines()[-1]))
