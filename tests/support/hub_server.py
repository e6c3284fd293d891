"""A Hub of our own on this machine: it speaks the part of the Hub's HTTP that `huggingface_hub` asks for.

It serves repositories that a test fills: look-ups, trees, `resolve` with its headers and redirects to a second
address (as the Hub's own to its storage), ranges, and it misbehaves where a test says so. It keeps every request.
What is sent to it, repositories, files and commits, is `hub_uploads`'.

    with HubServer() as hub:
        hub.add("org/name", {"config.json": b"{}", "model.safetensors": b"…"}, lfs=("*.safetensors",))
        environment = {"HF_ENDPOINT": hub.url}
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from support.hub_repositories import Commit, Content, Fault, Repository, git_blob, sha256
from support.hub_uploads import Sent, Uploads

__all__ = ["PIECE", "Asked", "Commit", "Content", "Fault", "HubServer", "Repository", "git_blob", "sha256"]

PIECE = 16 * 1024
_API = re.compile(r"/api/models/(?P<id>[^/]+/[^/]+)(?:/(?P<what>revision|tree)/(?P<revision>[^/]+))?")
_RESOLVE = re.compile(r"/(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_STORED = re.compile(r"/stored/(?P<sha256>[0-9a-f]{64})")


@dataclass(frozen=True)
class Asked:
    """One request as it came over the wire; `storage` tells the second address from the first."""

    method: str
    path: str
    headers: Message
    storage: bool

    @property
    def token(self) -> str | None:
        return self.headers.get("Authorization")

    @property
    def range(self) -> str | None:
        return self.headers.get("Range")


class HubServer:
    """Two addresses: `url` for the Hub, and one for its storage, where LFS files are redirected to."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[Asked] = []
        self.bytes_sent = 0
        self.uploads = Uploads()
        self.compresses = False
        """Whether texts are sent compressed to who takes that, as the Hub does."""
        self.replies: bytes | None = None
        """Stands in for the answer of every look-up, as something that is no Hub gives."""
        self.held = threading.Event()
        """Set when an answer has come to its `hold`."""
        self._lock = threading.Lock()
        self._servers = [_serve(self, storage) for storage in (False, True)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_address[1]}"

    @property
    def storage_url(self) -> str:
        return f"http://127.0.0.1:{self._servers[1].server_address[1]}"

    def add(
        self,
        name: str,
        files: Mapping[str, bytes | Path],
        *,
        lfs: Iterable[str] = ("*.safetensors",),
        revision: str = "main",
    ) -> Repository:
        """Puts files at a revision of a repository, which is made if it is not there."""
        repository = self.repositories.setdefault(name, Repository({}))
        contents = {file: Content(source) for file, source in files.items()}
        repository.move(revision, Commit(contents, tuple(lfs)))
        return repository

    def asked_for(self, file: str) -> list[Asked]:
        """The requests for a file's bytes at the first address."""
        return [asked for asked in self.asked if asked.method == "GET" and asked.path.endswith(f"/{file}")]

    def note(self, asked: Asked) -> None:
        with self._lock:
            self.asked.append(asked)

    def count(self, sent: int) -> None:
        with self._lock:
            self.bytes_sent += sent

    def take_fault(self, repository: Repository, file: str) -> Fault:
        """What goes wrong with this answer."""
        with self._lock:
            fault = repository.faults.get(file)
            if fault is None or fault.times < 1:
                return Fault()
            fault.times -= 1
            return fault

    def stored(self, digest: str) -> tuple[Repository, str, Content] | None:
        """The file in the storage that has this hash."""
        for repository in self.repositories.values():
            for commit in repository.commits:
                for name, content in commit.files.items():
                    if commit.in_lfs(name) and content.sha256 == digest:
                        return repository, name, content
        return None

    def close(self) -> None:
        for repository in self.repositories.values():
            for fault in repository.faults.values():
                if fault.hold:
                    fault.hold.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> HubServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    """The pieces of a body that is sent without its length."""
    while size := int(source.readline(), 16):
        yield source.read(size)
        source.readline()
    source.readline()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients go away in the middle of things, as tests wish."""


def _serve(hub: HubServer, storage: bool) -> ThreadingHTTPServer:
    handler = type("Handler", (_Handler,), {"hub": hub, "storage": storage})
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    storage: bool
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._route()

    def do_HEAD(self) -> None:
        self._route()

    def do_POST(self) -> None:
        self._take()

    def do_PUT(self) -> None:
        self._take()

    def log_message(self, *_: object) -> None:
        return

    def _take(self) -> None:
        """What a client sends; its body is read to its end, or the connection could not be used again."""
        path = urlsplit(self.path).path
        self.hub.note(Asked(self.command, unquote(path), self.headers, self.storage))
        if "Content-Length" in self.headers:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        else:
            body = b"".join(_chunks(self.rfile))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        said = self.hub.uploads.take(self.hub, Sent(unquote(path), body, token, self.headers["Host"]))
        if said.status >= 400 and said.answer is None:
            return self._refuse(said.status, said.code, said.message)
        return self._send(said.answer, said.status)

    def _route(self) -> None:
        path = urlsplit(self.path).path
        self.hub.note(Asked(self.command, unquote(path), self.headers, self.storage))
        if self.storage:
            found = _STORED.fullmatch(path)
            stored = self.hub.stored(found["sha256"]) if found else None
            if stored is None:
                return self._refuse(404)
            return self._content(stored[0], stored[1], stored[2], {"ETag": f'"{stored[2].sha256}"'})
        if found := _API.fullmatch(path):
            return self._look_up(found["id"], found["what"], unquote(found["revision"] or "main"))
        if found := _RESOLVE.fullmatch(path):
            return self._resolve(found["id"], unquote(found["revision"]), unquote(found["file"]))
        return self._refuse(404)

    def _find(self, name: str, revision: str) -> tuple[Repository, Commit] | None:
        """A repository and its commit; None where a refusal was sent."""
        repository, token = self.hub.repositories.get(name), self.headers.get("Authorization")
        if repository is None or repository.private not in (None, token and token.removeprefix("Bearer ")):
            missing = repository is None and token
            return self._refuse(404 if missing else 401, "RepoNotFound", "Repository not found")
        if repository.refuses:
            return self._refuse(repository.refuses, "", "as the test wishes")
        commit = repository.find(revision)
        if commit is None:
            return self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repository, commit

    def _look_up(self, name: str, what: str | None, revision: str) -> None:
        found = self._find(name, revision)
        if found is None:
            return None
        repository, commit = found
        if what == "tree":
            return self._send(
                [{"type": "file", "path": name, **commit.describe(name)} for name in sorted(commit.files)]
            )
        siblings = []
        for file in sorted(commit.files):
            described = commit.describe(file)
            described["blobId"] = described.pop("oid")
            siblings.append({"rfilename": file, **described})
        gated = "manual" if repository.gated else False
        answer = {"id": name, "modelId": name, "sha": commit.sha, "private": False, "gated": gated}
        return self._send({**answer, "tags": [], "downloads": 0, "likes": 0, "siblings": siblings})

    def _resolve(self, name: str, revision: str, file: str) -> None:
        found = self._find(name, revision)
        if found is None:
            return None
        repository, commit = found
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if repository.gated and repository.gated != token:
            return self._refuse(403 if token else 401, "GatedRepo", "Access to model is restricted")
        if file not in commit.files:
            return self._refuse(404, "EntryNotFound", "Entry not found")
        content, told = commit.files[file], {"X-Repo-Commit": commit.sha}
        renamed = repository.faults.get(file, Fault()).etag
        if not commit.in_lfs(file):
            return self._content(repository, file, content, {**told, "ETag": f'"{renamed or content.git}"'})
        digest = content.sha256
        told |= {"X-Linked-Size": str(content.size), "X-Linked-ETag": f'"{renamed or digest}"'}
        self.send_response(302)
        for key, value in {**told, "Location": f"{self.hub.storage_url}/stored/{digest}"}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def _content(self, repository: Repository, file: str, content: Content, told: dict[str, str]) -> None:
        fault = self.hub.take_fault(repository, file) if self.command == "GET" else Fault()
        if fault.status:
            return self._refuse(fault.status)
        content = content if fault.sends is None else Content(fault.sends)
        begin, end, status = 0, content.size, 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and fault.ranges:
            begin, end = int(asked[1]), min(int(asked[2] or content.size) + 1, content.size)
            status = 206
            if begin >= content.size:
                return self._refuse(416)
            told["Content-Range"] = f"bytes {begin}-{end - 1}/{content.size}"
        gzips = "gzip" in self.headers.get("Accept-Encoding", "") and file.endswith(".json")
        if self.hub.compresses and gzips and status == 200:
            content = Content(gzip.compress(content.read(0, end)))
            end, told["Content-Encoding"] = content.size, "gzip"
        self.send_response(status)
        for key, value in {**told, "Accept-Ranges": "bytes", "Content-Length": str(end - begin)}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self._write(content.read(begin, end), fault)
        return None

    def _write(self, content: bytes, fault: Fault) -> None:
        sent = content if fault.cut is None else content[: fault.cut]
        with suppress(ConnectionError):  # the client went away, which is its right
            for at in range(0, len(sent), PIECE):
                self.hub.count(self.wfile.write(sent[at : at + PIECE]))
                self.wfile.flush()
                if fault.hold and not fault.hold.is_set():
                    self.hub.held.set()
                    fault.hold.wait()
                if fault.pause_s:
                    threading.Event().wait(fault.pause_s)
        if fault.cut is not None:
            self.close_connection = True

    def _send(self, answer: Any, status: int = 200) -> None:
        text = json.dumps(answer).encode() if self.hub.replies is None else self.hub.replies
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _refuse(self, status: int, code: str = "", message: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        if message:
            self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()
