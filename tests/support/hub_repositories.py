"""What the Hub of `hub_server` holds: repositories, their commits and files, and what goes wrong with them."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any


@dataclass
class Fault:
    """What goes wrong with a file: `sends` stands in for its bytes, `cut` ends the connection after so many bytes of
    an answer, `status` refuses it, `hold` is set by the test to let it go on behind its first piece, `pause_s` passes
    between its pieces, `etag` is told as the name of its content.

    It happens `times` times, then the file is served as it is.
    """

    sends: bytes | None = None
    cut: int | None = None
    status: int = 0
    hold: threading.Event | None = None
    pause_s: float = 0.0
    etag: str = ""
    ranges: bool = True
    times: int = 1_000_000


class Content:
    """A file's bytes; those of one on disk stay there, and are too many to hash: it goes by another's name."""

    def __init__(self, source: bytes | Path) -> None:
        self._source = source
        self.size = len(source) if isinstance(source, bytes) else source.stat().st_size
        named = source if isinstance(source, bytes) else f"{source} {self.size}".encode()
        self.sha256, self.git = sha256(named), git_blob(named)
        self.pointer = git_blob(b"oid sha256:%s" % self.sha256.encode())
        """Git's name for what it keeps of the file when it is in LFS."""

    def read(self, begin: int, end: int) -> bytes:
        if isinstance(self._source, bytes):
            return self._source[begin:end]
        with self._source.open("rb") as file:
            file.seek(begin)
            return file.read(end - begin)


@dataclass
class Commit:
    """The files of one commit; `sha` follows from them."""

    files: dict[str, Content]
    lfs: tuple[str, ...]

    @property
    def sha(self) -> str:
        text = json.dumps({name: content.git for name, content in sorted(self.files.items())})
        return hashlib.sha1(text.encode()).hexdigest()

    def in_lfs(self, name: str) -> bool:
        return any(fnmatch(name, pattern) for pattern in self.lfs)

    def describe(self, name: str) -> dict[str, Any]:
        content = self.files[name]
        if not self.in_lfs(name):
            return {"size": content.size, "oid": content.git}
        lfs = {"sha256": content.sha256, "oid": content.sha256, "size": content.size, "pointerSize": 134}
        return {"size": content.size, "oid": content.pointer, "lfs": lfs}


@dataclass
class Repository:
    """Commits by revision. `gated` and `private` open to this token alone; `refuses` is an answer to everything.

    `past` are commits that no revision stands for any more, in their order; `forget_past` drops them, as a rewritten
    history does.
    """

    revisions: dict[str, Commit]
    private: str | None = None
    gated: str | None = None
    refuses: int = 0
    faults: dict[str, Fault] = field(default_factory=dict)
    past: list[Commit] = field(default_factory=list)

    @property
    def commits(self) -> list[Commit]:
        """All that can be asked for."""
        return [*self.past, *self.revisions.values()]

    def find(self, revision: str) -> Commit | None:
        by_sha = {commit.sha: commit for commit in self.commits}
        return self.revisions.get(revision) or by_sha.get(revision)

    def move(self, revision: str, commit: Commit) -> None:
        """Makes a revision stand for another commit."""
        if revision in self.revisions:
            self.past.append(self.revisions[revision])
        self.revisions[revision] = commit

    def forget_past(self) -> None:
        self.past.clear()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_blob(content: bytes) -> str:
    """Git's name for a file of these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
