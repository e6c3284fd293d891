"""How a client passes on a model's NAME: a path is made absolute here, since the daemon runs in another
folder.

What a NAME means is decided by the daemon's resolver.
"""

from __future__ import annotations

import os

from mtplxd.paths import absolute

_PATH_STARTS = (os.sep, "." + os.sep, ".." + os.sep, "~")


def model_ref(name: str | os.PathLike[str]) -> str:
    """`name` as the daemon should see it: paths absolute, anything else unchanged."""
    text = os.fspath(name)
    if isinstance(name, os.PathLike) or text in (".", "..") or text.startswith(_PATH_STARTS):
        return str(absolute(text))
    return text
