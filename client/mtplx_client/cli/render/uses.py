"""What takes space on the disk, for programs and for people."""

from __future__ import annotations

from typing import Any

from mtplx_client.cli.render.words import size
from mtplx_client.disk_use import Use

_FOLDERS = ("packs", "store", "logs", "runs", "other")


def document(found: Use) -> dict[str, Any]:
    """All of it in bytes."""
    folders = {name: getattr(found, name) for name in _FOLDERS}
    each = [{"name": name, "bytes": count} for name, count in found.each_pack.items()]
    return {"path": str(found.path), **folders, "total": found.total, "free": found.free, "each_pack": each}


def lines(found: Use) -> str:
    """A line a folder, the packs below theirs."""
    rows = []
    for name in _FOLDERS:
        rows.append(f"{name:<8}{size(getattr(found, name)):>10}")
        if name == "packs":
            rows += [f"  {pack:<30}{size(count):>10}" for pack, count in found.each_pack.items()]
    rows.append(f"{'total':<8}{size(found.total):>10}  in {found.path}, {size(found.free)} free")
    return "\n".join(rows)
