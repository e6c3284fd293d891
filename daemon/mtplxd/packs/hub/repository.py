"""The Hub as this project uses it: one repository pinned to a commit, its files, and ranges of their bytes.

It speaks through `huggingface_hub`, which is imported when something is asked and not before. What the files mean
is `contents`', fetching them whole is `fetch`'s. A mirror never gets the token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mtplxd.errors import InvalidArgument, Unavailable
from mtplxd.packs.hub.cache import ETAG
from mtplxd.packs.hub.errors import AnotherFile, NoRange, explain, library_errors
from mtplxd.packs.hub.names import RepositoryName
from mtplxd.paths import HUB, HuggingFace

LOOK_UP_S = 20.0
"""Seconds that a look-up may wait for an answer."""
_NO_SUCH_RANGE = 416


@dataclass(frozen=True)
class RemoteFile:
    """One file of a repository. `sha256` is of its bytes where it is in LFS, else None; `blob` is git's name for it."""

    name: str
    size: int
    sha256: str | None
    blob: str

    @property
    def etag(self) -> str:
        """What names its content, in the Hub's answers and in the cache's folder of blobs."""
        return self.sha256 or self.blob


@dataclass(frozen=True)
class Repository:
    """A repository at one commit, and all its files by name. `endpoint` is empty where nothing can be fetched."""

    name: RepositoryName
    commit: str
    files: dict[str, RemoteFile]
    endpoint: str

    @contextmanager
    def stream(self, file: str, begin: int, end: int, timeout_s: float) -> Iterator[Iterator[bytes]]:
        """Bytes [begin, end) of a file, in pieces as they arrive; more where the server knows no ranges.

        Raises NoRange where it would have to start elsewhere than at the file's start, and typed errors.
        """
        wanted = {"Range": f"bytes={begin}-{end - 1}", "Accept-Encoding": "identity"}
        with self._answer(file, wanted, timeout_s) as answer:
            if begin and not _starts_at(answer, begin):
                raise NoRange(file)
            yield self._pieces(answer)

    def read(self, file: str, limit: int, timeout_s: float = LOOK_UP_S) -> tuple[bytes, int]:
        """A small file whole, and the bytes that came over the wire for it, fewer where it is compressed.

        Raises DataLoss where it has more than `limit` bytes or others than the repository states.
        """
        content = bytearray()
        with self._answer(file, {}, timeout_s) as answer:
            for piece in self._pieces(answer):
                content += piece
                if len(content) > limit:
                    break
            received = int(answer.num_bytes_downloaded)
        etag = self.files[file].etag
        if hash_bytes(bytes(content), etag) != etag:
            raise _another_file(file, self.name)
        return bytes(content), received

    @contextmanager
    def _answer(self, file: str, wanted: dict[str, str], timeout_s: float) -> Iterator[Any]:
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

        with ExitStack() as stack:
            with explained(self.name, self.endpoint):
                url = hf_hub_url(self.name.id, file, revision=self.commit, endpoint=self.endpoint)
                headers = build_hf_headers(token=token_for(self.endpoint), library_name="mtplxd") | wanted
                asked = get_session().stream(
                    "GET", url, headers=headers, follow_redirects=True, timeout=timeout_s
                )
                answer = stack.enter_context(asked)
                if answer.status_code == _NO_SUCH_RANGE:
                    raise _another_file(file, self.name)
                hf_raise_for_status(answer)
            self._check_same(file, answer)
            yield answer  # what goes wrong with whoever takes it is not the Hub's fault

    def _check_same(self, file: str, answer: Any) -> None:
        """Raises AnotherFile, before a byte is taken, where the answer is about other content than was listed."""
        told, listed = _told_etag(answer), self.files[file].etag
        if told != listed and ETAG.fullmatch(told) and len(told) == len(listed):
            fix = "begin anew, what is there now is listed then"
            raise AnotherFile("a file on the Hub changed since it was listed", f"{file} of {self.name}", fix)

    def _pieces(self, answer: Any) -> Iterator[bytes]:
        with explained(self.name, self.endpoint):
            yield from answer.iter_bytes()


def _told_etag(answer: Any) -> str:
    """What the Hub itself calls the content; its storage, where it leads to, may call it otherwise."""
    first = (answer.history or [answer])[0].headers
    told = first.get("X-Linked-ETag") or first.get("ETag") or ""
    return str(told).removeprefix("W/").strip('"')


def _another_file(file: str, name: RepositoryName) -> AnotherFile:
    return AnotherFile("the Hub sent another file than it lists", f"{file} of {name}", "try again")


def open_repository(name: RepositoryName, hugging_face: HuggingFace) -> Repository:
    """Looks a repository up: its commit and its files. Raises NotFound, FailedPrecondition, Unavailable."""
    endpoint = endpoint_of(hugging_face)
    if hugging_face.offline:
        raise Unavailable("the Hub is switched off", f"HF_HUB_OFFLINE, {name}", "unset it to reach the Hub")
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint, token=token_for(endpoint), library_name="mtplxd")
    with explained(name, endpoint):
        found = api.model_info(name.id, revision=name.revision, files_metadata=True, timeout=LOOK_UP_S)
        files = [_file(sibling) for sibling in found.siblings or () if _is_inside(sibling.rfilename)]
        if not isinstance(found.sha, str):
            raise ValueError("no commit")
    return Repository(name, found.sha, {file.name: file for file in files}, endpoint)


def endpoint_of(hugging_face: HuggingFace) -> str:
    """Where the Hub is, without a slash at its end. Raises InvalidArgument for what is no address."""
    endpoint = (hugging_face.endpoint or HUB).rstrip("/")
    try:
        parts = urlsplit(endpoint)
        whole = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        whole = False
    if not whole:
        raise InvalidArgument("HF_ENDPOINT is no address", endpoint, "write https://host, or unset it")
    return endpoint


def token_for(endpoint: str) -> bool | None:
    """None lets the library send the user's token; False forbids it, for any place but the Hub itself."""
    return None if endpoint == HUB else False


def hash_bytes(content: bytes, etag: str) -> str:
    """The hash of the kind that `etag` is: sha256, or git's name for a file."""
    return str(new_hash(etag, len(content), content).hexdigest())


def new_hash(etag: str, size: int, content: bytes = b"") -> Any:
    """A hash of the kind that `etag` is, of a file of `size` bytes that begins with `content`."""
    return hashlib.sha256(content) if len(etag) == 64 else hashlib.sha1(b"blob %d\0" % size + content)


def address_of(endpoint: str) -> str:
    """An address that can be shown."""
    return f"{urlsplit(endpoint).scheme}://{host_of(endpoint)}"


def host_of(endpoint: str) -> str:
    """Host and port alone: an address may carry a password."""
    parts = urlsplit(endpoint)
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "no host"


@contextmanager
def explained(name: RepositoryName, endpoint: str) -> Iterator[None]:
    """Turns whatever the library raises while it talks to the Hub into one typed error."""
    known = library_errors()
    try:
        yield
    except known as error:
        raise explain(error, str(name), host_of(endpoint), mirror=endpoint != HUB) from None


def _file(sibling: Any) -> RemoteFile:
    lfs = sibling.lfs
    size = sibling.size if lfs is None else lfs.size
    file = RemoteFile(sibling.rfilename, size, lfs.sha256 if lfs else None, sibling.blob_id)
    if type(size) is not int or size < 0 or not ETAG.fullmatch(file.etag):
        raise ValueError("a file without size and hash")
    return file


def _is_inside(name: str) -> bool:
    """Whether a name leads to a file below its folder, on any system; others are never fetched."""
    return not set(name) & set("\\:\0") and not {"", ".", ".."} & set(name.split("/"))


def _starts_at(answer: Any, begin: int) -> bool:
    given = answer.headers.get("Content-Range", "")
    return bool(answer.status_code == 206 and given.startswith(f"bytes {begin}-"))
