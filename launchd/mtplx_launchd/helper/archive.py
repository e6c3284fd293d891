"""The helper as one file: its modules in a zip that Python runs, the same bytes each time."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import mtplxd.thermal.fand

MAIN = """import os
import sys

try:  # before anything is imported: fans that another life left wait, and the machine may be busy
    os.setpriority(os.PRIO_PROCESS, 0, -15)
except OSError:  # only root may
    pass
from fand.__main__ import main

sys.exit(main())
"""
_DATE = (1980, 1, 1, 0, 0, 0)


def build_archive() -> bytes:
    """The helper's modules as package `fand`, with a main of their own. Raises OSError."""
    folder = Path(mtplxd.thermal.fand.__file__).parent
    files = {f"fand/{path.name}": path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {"__main__.py": MAIN, **files}.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), text.encode(), zipfile.ZIP_DEFLATED)
    return found.getvalue()
