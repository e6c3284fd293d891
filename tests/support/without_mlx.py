"""An environment in which `import mlx` fails, for child processes."""

from __future__ import annotations

import os
import tempfile
from functools import cache

_BLOCKER = """
import sys


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("mlx", "mlx_lm"):
            raise ImportError("mlx is blocked for this test")
        return None


sys.meta_path.insert(0, Blocker())
"""


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="no-mlx-")
    with open(os.path.join(folder.name, "sitecustomize.py"), "w") as file:
        file.write(_BLOCKER)
    return folder


def environment_without_mlx(**more: str) -> dict[str, str]:
    """The process's environment with a `sitecustomize` that blocks mlx and mlx_lm."""
    return {**os.environ, "PYTHONPATH": _folder().name, **more}
