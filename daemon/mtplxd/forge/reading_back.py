"""Reads a head that was just written as a load would, bound strictly to its body: what is judged is the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from mtplxd.families.body import Body
from mtplxd.families.load_head import bind_head, read_head
from mtplxd.families.settling import Settler
from mtplxd.packs.binding import check_head
from mtplxd.packs.folder import file_stamp
from mtplxd.packs.headers import read_headers, read_metadata
from mtplxd.packs.pack import Pack


def with_sidecar(pack: Pack, sidecar: Path) -> Pack:
    """The pack as it would be with this head."""
    others = {path: tensors for path, tensors in pack.headers.items() if path != pack.sidecar}
    return replace(
        pack,
        sidecar=sidecar,
        headers={**others, sidecar: read_headers(sidecar)},
        stamps={**pack.stamps, sidecar: file_stamp(sidecar)},
        metadata=read_metadata(sidecar),
    )


def read_back(pack: Pack, sidecar: Path, body: Body) -> Any:
    """The head in a file, driven beside a body that is loaded. Raises what a load of it would."""
    made = with_sidecar(pack, sidecar)
    report = check_head(made)
    weights = read_head(made, report)
    settler = Settler(len(weights.tensors), None, None)
    return bind_head(weights, report, body, settler, None).head
