"""What a training's folder says of itself, and arrays that are made once and kept in it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtplxd.errors import FailedPrecondition
from mtplxd.files import write_atomically


def agree(folder: Path, settings: dict[str, Any]) -> None:
    """Writes down what a run in this folder is made with. Raises FailedPrecondition where it was begun otherwise."""
    path = folder / "recipe.json"
    wanted = json.dumps(settings, indent=1)
    if not path.is_file():
        write_atomically(path, wanted.encode())
    elif path.read_text() != wanted:
        raise FailedPrecondition(
            "this folder holds a run with other settings",
            folder,
            "use its settings or another --run folder",
        )


def kept(path: Path, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """What the file holds; made and written first where there is none."""
    if not path.is_file():
        content = io.BytesIO()
        np.save(content, make())
        write_atomically(path, content.getvalue())
    loaded: npt.NDArray[Any] = np.load(path)
    return loaded
