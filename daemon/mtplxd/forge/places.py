"""Which files lie in a model's folder on this machine. What they mean is `packs`'."""

from __future__ import annotations

from pathlib import Path

from mtplxd.errors import NotFound
from mtplxd.packs.contents import CONFIG
from mtplxd.packs.hub.cache import list_snapshot
from mtplxd.packs.pack import PAIR


def list_model(folder: Path) -> dict[str, Path]:
    """All files of a model's folder by name with `/`, and where their bytes lie; of another folder none, however large
    it is. Raises NotFound without a folder.
    """
    if not folder.is_dir():
        raise NotFound("no such folder", folder, "check the path")
    return list_snapshot(folder) if any((folder / one).is_file() for one in (CONFIG, PAIR)) else {}
