"""Fingerprints kept from one process to the next, so that a pack's weights are read once and not at every look.

A key is of the files' places and stamps, so what changed has another and is read again. Nothing here can make a
fingerprint: what is lost, damaged or cannot be written costs a reading, no more.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mtplxd.files import write_atomically
from mtplxd.packs.folder import file_stamp

FILE_NAME = "fingerprints.json"
SETTLED_NS = 2_000_000_000
"""A file's stamp says nothing of a write within the same tick of the file system's clock: young files are not kept."""
_MOST = 512
_lock = threading.Lock()
_place: Path | None = None

Stamps = Mapping[Path, tuple[int, ...]]
"""By file what `folder.file_stamp` says of it: size, time of its content, time of its record, number."""


def keep_in(folder: Path | None) -> None:
    """From now on fingerprints of this process are kept in a file of that folder; None keeps none."""
    global _place
    with _lock:
        _place = folder and folder / FILE_NAME


def remembered(
    kind: str, stamps: Stamps, more: str, make: Callable[[], str], now: Callable[[], int] = time.time_ns
) -> str:
    """What `make` gives for these files, from memory where it was made of them before.

    `more` is whatever else the result depends on, `now` the time in nanoseconds. Raises what `make` raises.
    """
    key = _key(kind, stamps, more)
    with _lock:
        known = _read().get(key)
    if known is not None:
        return known
    made = make()
    if _is_settled(stamps, now()):
        with _lock:
            _write({**_read(), key: made})
    return made


def _is_settled(stamps: Stamps, now: int) -> bool:
    """Whether the files are still those that were stamped, and were so for a while."""
    return all(
        max(stamp[1:3]) + SETTLED_NS <= now and path.is_file() and file_stamp(path) == stamp
        for path, stamp in stamps.items()
    )


def _key(kind: str, stamps: Stamps, more: str) -> str:
    files: Iterable[object] = sorted([str(path), *stamp] for path, stamp in stamps.items())
    return hashlib.sha256(json.dumps([kind, list(files), more]).encode()).hexdigest()


def _read() -> dict[str, str]:
    try:
        found = json.loads(_place.read_bytes()) if _place else {}
    except (OSError, ValueError):
        return {}
    texts = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if texts else {}


def _write(found: dict[str, str]) -> None:
    """The newest last; the oldest go."""
    if _place is None or not _place.parent.is_dir():
        return
    kept = dict(list(found.items())[-_MOST:])
    try:
        write_atomically(_place, json.dumps(kept, indent=1).encode())
    except OSError:
        return
