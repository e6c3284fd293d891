"""Which layout a set of tensor names shows, and which of the names are the head's. Names and config alone decide.

`pack` splits body and head by it and `detector` reports by it, so that both always agree.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mtplxd.packs.layouts import LAYOUTS
from mtplxd.packs.layouts.row import WRAPS, Config, Layout

_LIKE_A_HEAD = re.compile(r"(?:model\.|language_model\.)*(?:mtp|mtp_[a-z_]+|nextn|nextn_[a-z_]+)\.")


@dataclass(frozen=True)
class Found:
    """A layout and what stands before its names here; `layout` is None for names that only look like a head's."""

    layout: Layout | None
    wrap: str = ""

    def owns(self, name: str, layers: int) -> bool:
        """Whether a stored name lies in this head's namespace, under whichever wrap, or in that of any head: no body
        has a use for those, and binding names what is left over."""
        if _LIKE_A_HEAD.match(name):
            return True
        layout = self.layout
        return layout is not None and any(
            layout.owns(name[len(w) :], layers) for w in _wraps(layout) if name.startswith(w)
        )


def find_layout(
    names: Collection[str], family: str, config: Config, claim: str | None = None
) -> Found | None:
    """What these names show, None when no head is among them.

    Signature keys decide: those of the layout that the file's metadata claims, then of the family's own layouts; then
    the claim alone; a family's namespace without the signature is half a head. `names` needs a fast `in`.
    """
    layers = body_layers(config)
    own = [row for row in LAYOUTS if family in row.families]
    others = [row for row in LAYOUTS if row not in own]
    claimed = [row for row in LAYOUTS if row.name == claim or (row.kind == claim and row in own)]
    refused = [row for row in own if row.unsupported]
    return (
        _by_signature(claimed, names, layers)
        or _by_signature(own, names, layers)
        or _by_namespace(refused, names, layers)
        or _by_namespace(claimed, names, layers)
        or _by_signature(others, names, layers)
        or _by_namespace(own, names, layers)
        or (Found(None) if any(map(_LIKE_A_HEAD.match, names)) else None)
    )


def split_names(names: Collection[str], family: str, config: Config) -> frozenset[str]:
    """Those names of a body's files that are a head's."""
    found, layers = find_layout(names, family, config), body_layers(config)
    return frozenset(name for name in names if found.owns(name, layers)) if found else frozenset()


def body_layers(config: Config) -> int:
    """How many layers the body has, 0 when its config does not say."""
    value: Any = config.get("num_hidden_layers")
    return value if type(value) is int and value > 0 else 0


def unwrap(found: Found, stored: Mapping[str, Any]) -> dict[str, str]:
    """Stored name by bare name, for what stands under the wrap that was found."""
    return {name[len(found.wrap) :]: name for name in stored if name.startswith(found.wrap)}


def _wraps(row: Layout) -> tuple[str, ...]:
    """A layout without a prefix is a checkpoint of its own, which nothing wraps."""
    return WRAPS if row.prefix else ("",)


def _by_signature(rows: list[Layout], names: Collection[str], layers: int) -> Found | None:
    for row in rows:
        keys = [key.replace("{N}", str(layers)) for key in row.signature]
        for wrap in _wraps(row):
            if keys and all(wrap + key in names for key in keys):
                return Found(row, wrap)
    return None


def _by_namespace(rows: list[Layout], names: Collection[str], layers: int) -> Found | None:
    for row in rows:
        home = (row.home, *(wrap for wrap in _wraps(row) if wrap != row.home))
        for wrap in home if row.prefix else ("",):
            if any(name.startswith(wrap) and row.owns(name[len(wrap) :], layers) for name in names):
                return Found(row, wrap)
    return None
