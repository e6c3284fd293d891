"""The file of what was learnt about packs on this machine, `tuning.json`: sections of records by key.

One constructor makes the keys. A damaged file is as if there were none, and the next record makes it anew; what other
versions put beside the sections stays.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtplxd.files import write_atomically
from mtplxd.platform.machine import Machine

log = logging.getLogger(__name__)

MOST = 256
"""Records of a section; the oldest go."""


def tuning_key(fingerprint_body: str, fingerprint_head: str, machine: Machine, backend: str) -> str:
    """What a record is of: body and head by content, the machine, and what computes. Nothing of one start is in it."""
    parts = [fingerprint_body, fingerprint_head, machine.chip, machine.arch, machine.cores, backend]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


class TuningFile:
    """Reads and writes records; from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def read(self, section: str, key: str) -> dict[str, Any] | None:
        """The record, None where there is none."""
        with self._lock:
            found = self._section(self._read(), section).get(key)
        return found if isinstance(found, dict) else None

    def write(self, section: str, key: str, record: Mapping[str, Any]) -> bool:
        """Keeps a record in place of the one before; a full or closed disk costs the record and a line of the log,
        and gives False.
        """
        with self._lock:
            everything = self._read()
            records = self._section(everything, section)
            records.pop(key, None)
            records[key] = dict(record)
            everything[section] = dict([*records.items()][-MOST:])
            return self._save(everything)

    def remove(self, section: str, key: str) -> bool:
        """Drops a record; whether there was one and it is gone."""
        with self._lock:
            everything = self._read()
            found = self._section(everything, section).pop(key, None)
            return found is not None and self._save(everything)

    def _save(self, everything: Mapping[str, Any]) -> bool:
        try:
            write_atomically(self._path, json.dumps(everything, indent=1).encode())
        except OSError as error:
            log.warning("cannot write %s: %s", self._path, error.strerror or error)
            return False
        return True

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("%s is not used: %s", self._path, error)
            return {}
        if not isinstance(found, dict):
            log.warning("%s is not used: it holds no sections", self._path)
            return {}
        return found

    @staticmethod
    def _section(everything: Mapping[str, Any], section: str) -> dict[str, Any]:
        found = everything.get(section)
        return found if isinstance(found, dict) else {}
