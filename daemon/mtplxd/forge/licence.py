"""Under which licence a checkpoint is: as its card says, else as the licence's own text shows.

It reads two small files and says nothing about what a licence allows.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from mtplxd.packs.folder import Folder

OTHER = "other"
"""The Hub's word for a licence that it has no name for; `license_name` beside it gives one."""
CARD = "README.md"
_FILES = re.compile(r"(licen[cs]e|copying)(\.md|\.txt)?", re.IGNORECASE)
_TEXTS = (
    (r"apache license,?\s+version 2\.0", "apache-2.0"),
    (r"\bmit license\b|permission is hereby granted, free of charge", "mit"),
    (r"gnu affero general public license\s+version 3", "agpl-3.0"),
    (r"gnu lesser general public license\s+version 3", "lgpl-3.0"),
    (r"gnu general public license\s+version 3", "gpl-3.0"),
    (r"gnu general public license\s+version 2", "gpl-2.0"),
    (r"neither the name of .{0,200}may be used to endorse", "bsd-3-clause"),
    (r"mozilla public license version 2\.0", "mpl-2.0"),
)
_LOOKED_AT = 20_000
"""Characters of a licence's text; its title stands at its head."""


def licence_of(folder: Folder) -> str | None:
    """The licence's name as the Hub writes it (`apache-2.0`), a name of its publisher's own, `other` for a text that
    nobody here knows; None where nothing is stated. Raises what `Folder.read` raises.
    """
    names = folder.names()
    stated = _stated(_text(folder, CARD)) if CARD in names else None
    if stated:
        return stated
    file = licence_file(names)
    return _recognise(_text(folder, file)) if file else None


def licence_file(names: Collection[str]) -> str | None:
    """The file among them that is the licence's text, None without one."""
    found = [name for name in names if _FILES.fullmatch(name)]
    return min(found, key=lambda name: (name.lower().startswith("copying"), name), default=None)


def front_matter(card: str) -> dict[str, str]:
    """The plain fields at the head of a card, by name; lists and tables are left out."""
    found = re.match(r"\A\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", card, re.DOTALL)
    lines = found[1].splitlines() if found else []
    pairs = (re.fullmatch(r"([A-Za-z_]+):[ \t]*(\S.*?)[ \t]*", line) for line in lines)
    return {pair[1]: pair[2].strip("\"'") for pair in pairs if pair}


def _stated(card: str) -> str | None:
    fields = front_matter(card)
    licence = fields.get("license", "").strip("[]\"' ").lower()
    return (fields.get("license_name") or licence) if licence == OTHER else licence or None


def _recognise(text: str) -> str:
    head = " ".join(text[:_LOOKED_AT].lower().split())
    return next((name for pattern, name in _TEXTS if re.search(pattern, head)), OTHER)


def _text(folder: Folder, name: str) -> str:
    return folder.read(name).decode("utf-8", "replace")
