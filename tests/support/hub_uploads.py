"""What a client sends to the Hub of `hub_server`: a repository made, files into its storage, a commit of them.

As on the Hub, nothing is seen of an upload before its commit. `Uploads.refuses` makes steps fail, so many times.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from support.hub_repositories import Commit, Content, Repository

if TYPE_CHECKING:
    from support.hub_server import HubServer

LFS = ("*.safetensors", "*.bin", "tokenizer.json")
"""What goes into LFS in a new repository."""

_STEPS = {
    "create": re.compile(r"/api/repos/create"),
    "card": re.compile(r"/api/validate-yaml"),
    "preupload": re.compile(r"/api/models/(?P<id>[^/]+/[^/]+)/preupload/(?P<revision>.+)"),
    "batch": re.compile(r"/(?P<id>[^/]+/[^/]+)\.git/info/lfs/objects/batch"),
    "put": re.compile(r"/upload/(?P<sha256>[0-9a-f]{64})"),
    "verify": re.compile(r"/verify/(?P<sha256>[0-9a-f]{64})"),
    "commit": re.compile(r"/api/models/(?P<id>[^/]+/[^/]+)/commit/(?P<revision>.+)"),
}


@dataclass(frozen=True)
class Sent:
    """One request with a body; `host` is the name the client knows the server by."""

    path: str
    body: bytes
    token: str | None
    host: str


@dataclass(frozen=True)
class Said:
    """The answer; `code` and `message` are the Hub's own headers of a refusal without a text."""

    answer: Any = None
    status: int = 200
    code: str = ""
    message: str = ""


@dataclass
class Uploads:
    """`token` may write, anybody where it is None; `forbidden` names repositories and owners that it may not change.

    `refuses` holds the statuses that a step answers with next, by step. `ignored` are files that the repository's own
    rules leave out. `before_commit` is called first, as somebody else who pushes. `steps` are those that were taken,
    `hold` is set by the test to let the first upload go on.
    """

    token: str | None = None
    forbidden: set[str] = field(default_factory=set)
    refuses: dict[str, list[int]] = field(default_factory=dict)
    ignored: set[str] = field(default_factory=set)
    before_commit: Callable[[], None] = lambda: None
    stored: dict[str, bytes] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    summaries: list[str] = field(default_factory=list)
    hold: threading.Event | None = None
    held: threading.Event = field(default_factory=threading.Event)

    def take(self, hub: HubServer, sent: Sent) -> Said:
        """The answer to what a client sends."""
        for step, pattern in _STEPS.items():
            if found := pattern.fullmatch(sent.path):
                self.steps.append(step)
                return self._refused(step, sent, found) or getattr(self, f"_{step}")(hub, sent, found)
        return Said(status=404)

    def _refused(self, step: str, sent: Sent, found: re.Match[str]) -> Said | None:
        if statuses := self.refuses.get(step):
            return Said(status=statuses.pop(0))
        if step in ("put", "card"):  # an upload's address is its permission
            return None
        if self.token not in (None, sent.token):
            return Said(status=401, message="Invalid username or password.")
        named = found.groupdict().get("id") or _new_name(sent)
        return Said(status=403) if {named, named.partition("/")[0]} & self.forbidden else None

    def _create(self, hub: HubServer, sent: Sent, _: re.Match[str]) -> Said:
        name = _new_name(sent)
        url = f"{_base(hub, sent)}/{name}"
        if name in hub.repositories:
            return Said({"error": "You already created this model repo", "url": url}, status=409)
        first = Commit({".gitattributes": Content(b"*.safetensors filter=lfs")}, LFS)
        hub.repositories[name] = Repository({"main": first})
        return Said({"url": url, "name": name})

    def _card(self, _hub: HubServer, _sent: Sent, _: re.Match[str]) -> Said:
        return Said({"warnings": [], "errors": []})

    def _preupload(self, hub: HubServer, sent: Sent, found: re.Match[str]) -> Said:
        commit = _commit(hub, found)
        if commit is None:
            return _missing(found)
        files = []
        for asked in json.loads(sent.body)["files"]:
            name = asked["path"]
            known = commit.files.get(name)
            lfs = any(fnmatch(name, pattern) for pattern in commit.lfs)
            oid = {"oid": known.sha256 if lfs else known.git} if known else {}
            mode = "lfs" if lfs else "regular"
            files.append({"path": name, "uploadMode": mode, "shouldIgnore": name in self.ignored, **oid})
        return Said({"files": files})

    def _batch(self, hub: HubServer, sent: Sent, found: re.Match[str]) -> Said:
        if _commit(hub, {**found.groupdict(), "revision": "main"}) is None:
            return _missing(found)
        objects = []
        for asked in json.loads(sent.body)["objects"]:
            digest = asked["oid"]
            actions = {
                "upload": {"href": f"{hub.storage_url}/upload/{digest}"},
                "verify": {"href": f"{_base(hub, sent)}/verify/{digest}"},
            }
            there = digest in self.stored or hub.stored(digest) is not None
            objects.append({**asked, **({} if there else {"actions": actions})})
        return Said({"transfer": "basic", "objects": objects})

    def _put(self, _hub: HubServer, sent: Sent, found: re.Match[str]) -> Said:
        if self.hold and not self.hold.is_set():
            self.held.set()
            self.hold.wait()
        if hashlib.sha256(sent.body).hexdigest() != found["sha256"]:
            return Said(status=400)
        self.stored[found["sha256"]] = sent.body
        return Said({})

    def _verify(self, _hub: HubServer, sent: Sent, found: re.Match[str]) -> Said:
        size = json.loads(sent.body)["size"]
        return Said({}) if len(self.stored.get(found["sha256"], b"")) == size else Said(status=404)

    def _commit(self, hub: HubServer, sent: Sent, found: re.Match[str]) -> Said:
        self.before_commit()
        commit = _commit(hub, found)
        if commit is None:
            return _missing(found)
        files, lfs = dict(commit.files), list(commit.lfs)
        for line in sent.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            match entry["key"]:
                case "header":
                    if value.get("parentCommit") not in (None, commit.sha):
                        return Said(status=412, message="A commit has happened since. Please refresh.")
                    self.summaries.append(value["summary"])
                case "file":
                    files[value["path"]] = Content(base64.b64decode(value["content"]))
                case "lfsFile":
                    content = self._content(hub, value["oid"])
                    if content is None:
                        return Said(status=400, message="a file was not uploaded")
                    files[value["path"]] = content
                    lfs.append(value["path"])
                case "deletedFile":
                    if files.pop(value["path"], None) is None:
                        message = "A file with this name doesn't exist"
                        return Said(status=404, code="EntryNotFound", message=message)
        made = Commit(files, tuple(dict.fromkeys(lfs)))
        hub.repositories[found["id"]].move(found["revision"], made)
        url = f"{_base(hub, sent)}/{found['id']}/commit/{made.sha}"
        return Said({"success": True, "commitOid": made.sha, "commitUrl": url})

    def _content(self, hub: HubServer, digest: str) -> Content | None:
        if digest in self.stored:
            return Content(self.stored[digest])
        there = hub.stored(digest)
        return there[2] if there else None


def _new_name(sent: Sent) -> str:
    asked = json.loads(sent.body)
    return f"{asked.get('organization') or 'me'}/{asked.get('name')}"


def _commit(hub: HubServer, found: Any) -> Commit | None:
    repository = hub.repositories.get(found["id"])
    return repository.revisions.get(found["revision"]) if repository else None


def _missing(found: re.Match[str]) -> Said:
    return Said(status=404, code="RepoNotFound", message=f"Repository not found: {found['id']}")


def _base(hub: HubServer, sent: Sent) -> str:
    """The server's address as the client knows it."""
    return f"https://{sent.host}" if sent.host == "huggingface.co" else hub.url
