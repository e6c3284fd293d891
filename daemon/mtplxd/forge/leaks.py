"""What must not leave this machine: paths of it, and secrets. A text is looked through; nothing is read or judged here.

A secret that is found is never shown, not even in the refusal that it causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["path", "secret"]
_SHOWN = 60

_PATH = re.compile(
    r"(?<![\w./:~-])(?:/(?:Users|home|Volumes|mnt|media)/[\w.-]+|/(?:root|tmp|private|var/folders|opt|srv|work)/[\w.-]+"
    r"|~/[\w.-]+|file://[^\s\"')]+|[A-Za-z]:\\{1,2}Users\\{1,2}[\w.-]+)"
)
_SECRET = re.compile(
    r"\b(?:(?:hf|api_org)_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|github_pat_[A-Za-z0-9_]{30,}|AKIA[0-9A-Z]{16}|xox[abprs]-[A-Za-z0-9-]{10,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


@dataclass(frozen=True)
class Leak:
    """One thing that was found; `shown` is what may be said of it."""

    kind: Kind
    shown: str


def find_leaks(
    text: str, *, places: Iterable[str] = (), secrets: Iterable[str] = (), vocabulary: bool = False
) -> list[Leak]:
    """Each once, in the order of the text. `places` and `secrets` are this machine's own, found wherever they stand.

    A `vocabulary` holds all that a model can write: of paths only this machine's own count in it.
    """
    patterns: list[tuple[Kind, re.Pattern[str]]] = [("secret", _SECRET)]
    if not vocabulary:
        patterns.append(("path", _PATH))
    if known := _any_of(secrets):
        patterns.append(("secret", known))
    if known := _any_of(places):
        patterns.append(("path", known))
    matches = [(match, kind) for kind, pattern in patterns for match in pattern.finditer(text)]
    found: list[Leak] = []
    told = 0
    for match, kind in sorted(matches, key=lambda one: (one[0].start(), -one[0].end())):
        if match.start() >= told:
            told = match.end()
            found.append(Leak(kind, _shown(kind, match[0])))
    return list(dict.fromkeys(found))


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    words = sorted({text for text in texts if len(text) > 3}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, words))) if words else None


def _shown(kind: Kind, text: str) -> str:
    return "a token or key" if kind == "secret" else text[:_SHOWN]
