"""`doctor --bundle`: one file for a report, with facts and logs, without prompts, answers or keys.

What is not listed here is not in it: no pack, no session, no block, no history, no environment.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.files import write_atomically
from mtplxd.paths import Home

LOGS = ("mtplxd.log", "mtplxd.err", "last-failure.log", "mtplxd-faults.log")
LOG_BYTES = 512 << 10
_KEYS = re.compile(
    r"""(?ix) \b(?:hf|api|sk|ghp|gho|xox[a-z])[_-][a-z0-9_-]{8,} | (?<=bearer\s)\S+ | (?<=://)[^/\s:@]+:[^/\s@]+(?=@)
    | (?<![a-z]) (?:token|secret|password|passwd|api[_-]?key|authorization) ["']? \s* [=:] \s* (?!\s*bearer)\S+"""
)


def redact(text: str) -> str:
    """The text without what looks like a key, and with ~ for the user's folder."""
    return _KEYS.sub("(left out)", text).replace(str(Path.home()) + "/", "~/")


def write_bundle(path: Path, home: Home, documents: Mapping[str, Any], job: str) -> list[str]:
    """Writes the file, for the owner alone; the names in it. `job` is the text of the job's file, empty without one.

    Raises FailedPrecondition where it cannot be written.
    """
    parts = {f"{name}.json": json.dumps(document, indent=1) for name, document in documents.items()}
    if job:
        parts["job.txt"] = job
    parts |= {f"logs/{name}": text for name in LOGS if (text := _end(home.logs / name))}
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in parts.items():
            bundle.writestr(name, redact(text))
    try:
        write_atomically(path, memory.getvalue())
    except OSError as error:
        raise FailedPrecondition(
            "cannot write the bundle", f"{path}: {error.strerror}", "choose another place"
        ) from error
    return list(parts)


def _end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
