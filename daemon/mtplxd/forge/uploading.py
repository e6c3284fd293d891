"""The process that a publishing starts: it sends a folder's files to a repository, commits them, and reads them back.

Nothing is seen on the Hub before the commit, so a process that is killed has published nothing. The token is the
library's matter, from the environment or its own file: it is in no argument and no line of output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mtplxd import __version__
from mtplxd.errors import DataLoss, FailedPrecondition, MtplxError
from mtplxd.packs.contents import INDEX, SIDECARS
from mtplxd.packs.hub.errors import LOG_IN
from mtplxd.packs.hub.names import RepositoryName
from mtplxd.packs.hub.repository import (
    RemoteFile,
    Repository,
    endpoint_of,
    explained,
    open_repository,
    token_for,
)
from mtplxd.packs.hub.transfer import hash_of
from mtplxd.packs.pack import ASSISTANT, TARGET
from mtplxd.packs.workers import end_with_parent, say, say_error
from mtplxd.paths import HUB, HuggingFace, resolve_hugging_face

Report = Callable[[int, str], None]
"""Takes the bytes that are there and the file that came last."""
_WEIGHTS = ".safetensors"


@dataclass(frozen=True)
class Job:
    """`files` of `folder` by name, with the sha256 that each must have."""

    repo: str
    folder: Path
    files: Mapping[str, str]
    summary: str

    def to_json(self) -> str:
        """For the command line of the process: it holds no secret."""
        return json.dumps({**asdict(self), "folder": str(self.folder)})

    @classmethod
    def from_json(cls, text: str) -> Job:
        asked = json.loads(text)
        return cls(asked["repo"], Path(asked["folder"]), asked["files"], asked["summary"])


@dataclass(frozen=True)
class Done:
    """The commit that holds the files now, and weights of the repository that it removed."""

    commit: str
    removed: tuple[str, ...]


def upload(job: Job, hugging_face: HuggingFace, report: Report) -> Done:
    """Makes the repository if it is not there, sends, commits, and looks at what the Hub has then.

    Weights that only the repository has are removed: a reader would take them for the pack's. Raises the Hub's errors,
    FailedPrecondition without a token or where somebody else pushed meanwhile, DataLoss.
    """
    endpoint = endpoint_of(hugging_face)
    name = RepositoryName(job.repo)
    api = _api(endpoint, name)
    with explained(name, endpoint):
        api.create_repo(name.id, exist_ok=True)
    before = open_repository(name, hugging_face)
    removed = _strays(before, job.files)
    commit = _send(api, job, before, removed, report)
    _check(open_repository(RepositoryName(name.id, commit), hugging_face), job)
    return Done(commit, tuple(removed))


def _api(endpoint: str, name: RepositoryName) -> Any:
    from huggingface_hub import HfApi, get_token

    if endpoint == HUB and not get_token():
        raise FailedPrecondition("the Hub asks who publishes", name, f"{LOG_IN}, with a token that may write")
    return HfApi(
        endpoint=endpoint, token=token_for(endpoint), library_name="mtplxd", library_version=__version__
    )


def _send(api: Any, job: Job, before: Repository, removed: Sequence[str], report: Report) -> str:
    from huggingface_hub import CommitOperationDelete

    additions = {name: _addition(job, name) for name in sorted(job.files)}
    done = 0
    with explained(before.name, before.endpoint), _causes():
        for name, addition in additions.items():
            if name.endswith(_WEIGHTS):
                api.preupload_lfs_files(before.name.id, additions=[addition], free_memory=False)
                done += addition.upload_info.size
                report(done, name)
        made = api.create_commit(
            before.name.id,
            operations=[*additions.values(), *(CommitOperationDelete(name) for name in removed)],
            commit_message=job.summary,
            parent_commit=before.commit,
        )
    return str(made.oid)


def _addition(job: Job, name: str) -> Any:
    """A file to send, with the bytes that were looked through before."""
    from huggingface_hub import CommitOperationAdd

    path = job.folder / name
    try:
        addition = CommitOperationAdd(name, path)
        same = addition.upload_info.sha256.hex() == job.files[name]
    except (OSError, ValueError):
        same = False
    if not same:
        raise DataLoss("a file of the pack changed while it was published", path, "publish it again")
    return addition


@contextmanager
def _causes() -> Iterator[None]:
    """The library wraps what goes wrong with an upload; what it wraps is what there is to explain."""
    try:
        yield
    except RuntimeError as error:
        raise error.__cause__ or error from None


def _strays(before: Repository, files: Mapping[str, str]) -> list[str]:
    return sorted(name for name in before.files if name not in files and _is_read(name))


def _is_read(name: str) -> bool:
    """Whether a reader of the pack would look at a file for weights: its folder's, a pair's, a head's own place."""
    inside = "/" not in name or name.startswith((f"{TARGET}/", f"{ASSISTANT}/")) or name in SIDECARS
    return inside and name.endswith((_WEIGHTS, INDEX))


def _check(now: Repository, job: Job) -> None:
    for name, sha256 in job.files.items():
        there = now.files.get(name)
        if there is None or (there.sha256 or sha256) != sha256 or not _is_same(job.folder / name, there):
            what = "the Hub does not have a file as it was sent"
            raise DataLoss(
                what, f"{name} of {now.name}", "look at the repository's .gitignore, then publish again"
            )


def _is_same(path: Path, there: RemoteFile) -> bool:
    """Whether a file that git itself holds is the one here; those in LFS are known by their sha256."""
    return there.sha256 is not None or hash_of(path, there.blob) == there.blob


def _report(done: int, file: str) -> None:
    say({"done": done, "file": file})


def main(arguments: list[str]) -> int:
    """Entry of the child: the job in JSON. Says its progress and its end."""
    end_with_parent()
    try:
        done = upload(Job.from_json(arguments[0]), resolve_hugging_face(), _report)
    except MtplxError as error:
        say_error(error)
        return 1
    say({"commit": done.commit, "removed": list(done.removed)})
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
