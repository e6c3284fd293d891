"""`mtplx_source.json`: where a pulled pack came from, at which commit, and which bytes each file had then.

It lies beside the published files, which stay as they were published.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from mtplxd.errors import DataLoss
from mtplxd.files import write_atomically
from mtplxd.packs.folder import file_stamp
from mtplxd.packs.hub.names import RepositoryName, find_repository
from mtplxd.packs.manifest import FILE_NAME as MANIFEST

FILE_NAME = "mtplx_source.json"
_AGAIN = "pull it again"


@dataclass(frozen=True)
class PulledFile:
    """One file as it was when its hash was checked: `etag` is that hash, `modified` its time in ns."""

    size: int
    etag: str
    modified: int


@dataclass(frozen=True)
class PullRecord:
    """`name` as it was asked for, `commit` what it stood for, files by name."""

    name: str
    commit: str
    host: str
    files: dict[str, PulledFile]

    @property
    def repository(self) -> RepositoryName | None:
        return find_repository(self.name)


def read_record(folder: Path) -> PullRecord | None:
    """The record in a pack's folder, None without one. Raises DataLoss for one that cannot be read."""
    path = folder / FILE_NAME
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        files = {str(name): PulledFile(**entry) for name, entry in fields.pop("files").items()}
        return PullRecord(**fields, files=files)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DataLoss("damaged record of a pull", path, _AGAIN) from None


def write_record(folder: Path, record: PullRecord) -> None:
    """Puts the record into a pack's folder, atomically. Raises OSError."""
    write_atomically(folder / FILE_NAME, json.dumps(asdict(record), indent=2).encode() + b"\n", mode=0o644)


def describe(path: Path, etag: str) -> PulledFile:
    """What the record keeps of a file whose hash was just checked. Raises OSError."""
    size, modified, *_ = file_stamp(path)
    return PulledFile(size, etag, modified)


def check_whole(folder: Path, record: PullRecord) -> None:
    """Raises DataLoss naming a file that is gone or has another size than when it was pulled."""
    for name, pulled in record.files.items():
        path = folder / name
        if not path.is_file():
            raise DataLoss("a file of the pack is missing", path, _AGAIN)
        if name != MANIFEST and path.stat().st_size != pulled.size:
            raise DataLoss("a file of the pack has another size than the published one", path, _AGAIN)


def unchanged(folder: Path, record: PullRecord, name: str) -> bool:
    """Whether a file is as it was when its hash was checked. The contract file takes records made here."""
    try:
        now = describe(folder / name, record.files[name].etag)
    except OSError:
        return False
    return now == record.files[name] or name == MANIFEST
