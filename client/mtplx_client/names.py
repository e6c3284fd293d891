"""How a client passes on a model's NAME: a path becomes absolute, since the daemon runs in another folder.

What is a path, and what a NAME means, is decided by the resolver of `mtplxd.packs`.
"""

from __future__ import annotations

import os


def model_ref(name: str | os.PathLike[str]) -> str:
    """`name` as the daemon should see it: paths absolute, anything else unchanged."""
    if not name:
        return ""
    from mtplxd.packs.resolver import anchor  # kept out of the start of calls that name no model
    from mtplxd.paths import absolute

    return anchor(name) if isinstance(name, str) else str(absolute(os.fspath(name)))
