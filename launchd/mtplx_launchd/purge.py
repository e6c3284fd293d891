"""`service uninstall --purge`: removes what the daemon made in its home, and nothing else that may lie there.

Only while no daemon holds the home.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mtplxd.errors import FailedPrecondition
from mtplxd.paths import Home

LOCK = ".daemon.lock"
_FILES = (".config.lock", "fingerprints.json", "chat_history")


def purge(home: Home) -> list[Path]:
    """What was removed. Raises FailedPrecondition while a daemon runs there, or for what cannot be removed."""
    if not home.root.is_dir():
        return []
    with _held(home):
        gone = [path for path in _ours(home) if _remove(path)]
    _remove(home.root / LOCK)
    with contextlib.suppress(OSError):  # somebody else's files are in it
        home.root.rmdir()
    return gone


def _ours(home: Home) -> list[Path]:
    folders = [home.packs, home.store, home.runs, home.logs, home.run]
    files = [home.config_file, home.tuning_file, *(home.root / name for name in _FILES)]
    return [*folders, *files]


def _remove(path: Path) -> bool:
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            shutil.rmtree(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise FailedPrecondition("cannot remove", f"{path}: {error.strerror}", "remove it by hand") from error
    return True


@contextlib.contextmanager
def _held(home: Home) -> Iterator[None]:
    """The home's own lock, so that no daemon starts in it meanwhile."""
    try:
        descriptor = os.open(home.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise FailedPrecondition("cannot open a lock file", home.root / LOCK, error.strerror or "") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise FailedPrecondition(
            "a daemon runs in this home", home.root, "`mtplx stop`, then again"
        ) from None
    finally:
        os.close(descriptor)
