"""Whether the daemon's folders and files are their owner's alone. The socket's folder has a check of its own."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from mtplx_client.doctor.situation import Situation
from mtplx_client.doctor.verdicts import Check


def check_permissions(situation: Situation) -> Iterator[Check]:
    """Folders that hold prompts, settings and logs; what is not made yet is not wrong."""
    home = situation.home
    places = (
        home.root,
        home.store,
        home.logs,
        home.run,
        home.runs,
        home.packs,
        home.config_file,
        home.sessions_file,
    )
    wrong = [(place, trouble) for place in places if (trouble := _trouble(place))]
    if not wrong:
        yield Check("permissions", True, f"{home.root} is yours alone")
        return
    detail = "; ".join(f"{place} {trouble}" for place, trouble in wrong)
    closed = " ".join(shlex.quote(str(place)) for place, _ in wrong)
    yield Check("permissions", False, detail, f"chmod -R go-rwx {closed}, and chown them to yourself")


def _trouble(place: Path) -> str:
    try:
        found = os.stat(place)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or "cannot be read"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    return "is open to other users" if stat.S_IMODE(found.st_mode) & 0o077 else ""
