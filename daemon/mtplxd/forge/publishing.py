"""`mtplx forge publish`: whether a pack may be shown to others as it is, and putting it on the Hub in one commit.

What goes out is the pack's own files, byte for byte; sending them is `uploading`'s, in a process of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from mtplxd.errors import FailedPrecondition, InvalidArgument, Unavailable
from mtplxd.files import locked
from mtplxd.forge.leaks import find_leaks
from mtplxd.forge.licence import CARD, licence_of
from mtplxd.forge.pacing import IsCancelled, Tell
from mtplxd.forge.places import list_model
from mtplxd.forge.uploading import Job
from mtplxd.packs.detector import TRAINED, detect_head
from mtplxd.packs.fetch import hash_file
from mtplxd.packs.folder import LocalFolder, file_stamp
from mtplxd.packs.headers import read_metadata
from mtplxd.packs.hub.names import DEFAULT_REVISION, RepositoryName, parse_repository
from mtplxd.packs.hub.plan import choose_wanted
from mtplxd.packs.hub.repository import address_of, endpoint_of
from mtplxd.packs.pack import Pack
from mtplxd.packs.remembered import remembered
from mtplxd.packs.tiers import judge
from mtplxd.packs.workers import Message, run_worker
from mtplxd.paths import Home, HuggingFace
from mtplxd.platform.machine import read_machine

WORKER = "mtplxd.forge.uploading"
STAGE = "upload"
_WEIGHTS = ".safetensors"
_COMMON = 2
"""Parts of a path that many machines have: `/root` names none of them."""
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt", ".tiktoken", ".model")


@dataclass(frozen=True)
class Refusal:
    """One reason why a pack is not published: what is wrong, in which file if in one, and what to do."""

    what: str
    where: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}{f' ({self.where})' if self.where else ''}: {self.fix}"


@dataclass(frozen=True)
class Published:
    """What was put on the Hub, or with `dry_run` would be: `files` by name with their sha256, `removed` weights that
    the repository had and the pack has not. `refusals` are empty but in a dry run.
    """

    repo: str
    url: str
    commit: str | None
    files: dict[str, str]
    bytes: int
    removed: tuple[str, ...] = ()
    dry_run: bool = False
    refusals: tuple[Refusal, ...] = ()

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            **asdict(self),
            "removed": list(self.removed),
            "refusals": [asdict(one) for one in self.refusals],
        }


def check_publishable(
    pack: Pack, home: Home | None, *, token: str | None = None, chip: str | None = None
) -> list[Refusal]:
    """Every reason against publishing a pack; empty where there is none. Reads all its files.

    `token` is the user's own, looked for beside all that look like one. `chip` is this machine's, read if not given.
    Raises DataLoss for a damaged pack, UnsupportedSource for a folder that holds none.
    """
    chip = read_machine().chip if chip is None else chip
    card = _card(pack)
    return [
        *_tier_refusals(pack),
        *_card_refusals(pack, card),
        *_machine_refusals(pack, card, chip),
        *_leak_refusals(pack, home, token),
    ]


def files_to_publish(pack: Pack) -> list[str]:
    """Names of the pack's files: those that a pull of it takes, and nothing that lies beside them."""
    return choose_wanted(LocalFolder(pack.path), list_model(pack.path))


def publish(
    pack: Pack,
    repo: str,
    hugging_face: HuggingFace,
    dry_run: bool,
    tell: Tell,
    cancelled: IsCancelled,
    *,
    home: Home | None = None,
) -> Published:
    """Puts a pack's files into a repository, which is made if it is not there, and looks whether they are.

    One commit or none, whatever happens. Raises InvalidArgument for another kind of name, FailedPrecondition where
    `check_publishable` says so or the Hub refuses, NotFound, Unavailable, DataLoss, Cancelled.
    """
    name = _parse(repo)
    tell("check", 0, 1, pack.name)
    refusals = tuple(check_publishable(pack, home, token=hugging_face.token))
    names = files_to_publish(pack)
    size = sum((pack.path / file).stat().st_size for file in names)
    url = f"{address_of(endpoint_of(hugging_face))}/{name.id}"
    if refusals and not dry_run:
        more = f", and {len(refusals) - 1} more reasons (--dry-run shows them)" if len(refusals) > 1 else ""
        raise FailedPrecondition(
            f"not published, {refusals[0].what}{more}", refusals[0].where or None, refusals[0].fix
        )
    files = {file: _sha256(pack.path / file) for file in names}
    if dry_run:
        return Published(name.id, url, None, files, size, dry_run=True, refusals=refusals)
    if hugging_face.offline:
        raise Unavailable("the Hub is switched off", f"HF_HUB_OFFLINE, {name}", "unset it to publish")
    with locked(
        (home.run if home else Path(gettempdir())) / f"publish-{pack.path.name}.lock", cancelled
    ) as lock:
        said = _upload(
            Job(name.id, pack.path, files, f"Publish {pack.name}"),
            hugging_face,
            lock,
            lambda done, file: tell(STAGE, done, size, file),
            cancelled,
        )
    return Published(name.id, url, str(said["commit"]), files, size, tuple(said["removed"]))


def _parse(repo: str) -> RepositoryName:
    name = parse_repository(repo)
    if name.revision != DEFAULT_REVISION:
        raise InvalidArgument("a pack is published to the main branch", repo, f"give {name.id}", field="repo")
    return name


def _upload(
    job: Job,
    hugging_face: HuggingFace,
    lock: int,
    on_file: Callable[[int, str], None],
    cancelled: IsCancelled,
) -> Message:
    """Runs the process that sends; its last word."""
    ended: list[Message] = []

    def take(message: Message) -> None:
        if "commit" in message:
            ended.append(message)
        else:
            on_file(int(message["done"]), str(message["file"]))

    run_worker(
        WORKER,
        (job.to_json(),),
        what="the upload",
        lock=lock,
        on_message=take,
        cancelled=cancelled,
        env=hugging_face.environment(
            HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_XET="1"
        ),
    )
    return ended[-1]


def _tier_refusals(pack: Pack) -> Iterator[Refusal]:
    tier, reasons = judge(pack)
    if tier != "verified":
        fix = f"`mtplx verify {pack.name}`, then publish" if tier == "unverified" else "build it again"
        yield Refusal(f"it is {tier}, {reasons[0] if reasons else 'not verified'}", "", fix)


def _card_refusals(pack: Pack, card: str | None) -> Iterator[Refusal]:
    if card is None:
        yield Refusal("it has no card", CARD, "build the pack again, a build drafts one")
    if licence_of(LocalFolder(pack.path)) is None:
        fix = "ask its author for one, and write it into the card (license: …)"
        yield Refusal("neither its card nor a file states a licence", "", fix)
    trained = detect_head(pack).trained or bool(pack.manifest and pack.manifest.training)
    if card is not None and trained and TRAINED not in card:
        yield Refusal(
            "its card does not say that its head was trained", CARD, f"write there that it is {TRAINED}"
        )


def _machine_refusals(pack: Pack, card: str | None, chip: str) -> Iterator[Refusal]:
    others = sorted(set(_chips(pack.manifest.fields if pack.manifest else {})) - {chip})
    for other in others:
        if not _names_chip(card or "", other):
            fix = "name it in the card, or measure and verify the pack here"
            yield Refusal("it holds a record of another machine", other, fix)


def _names_chip(card: str, chip: str) -> bool:
    """Whether a card names a chip, and not just a larger one of its name."""
    return re.search(rf"{re.escape(chip)}(?! (?:Pro|Max|Ultra)\b)(?!\w)", card) is not None


def _chips(value: Any) -> Iterator[str]:
    """Of every machine that a record in the contract names."""
    if isinstance(value, dict):
        machine = value.get("machine")
        if isinstance(machine, dict) and isinstance(machine.get("chip"), str) and machine["chip"]:
            yield machine["chip"]
        verified_on = value.get("verified_on")
        if isinstance(verified_on, dict) and isinstance(verified_on.get("hardware"), str):
            yield verified_on["hardware"]
    inner: Iterable[Any] = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for one in inner:
        yield from _chips(one)


def _leak_refusals(pack: Pack, home: Home | None, token: str | None) -> Iterator[Refusal]:
    own = (pack.path.parent, Path.home(), *([home.root] if home else []))
    places = [str(place) for place in own if len(place.parts) > _COMMON]
    for name in files_to_publish(pack):
        for leak in find_leaks(
            _text(pack.path / name),
            places=places,
            secrets=[token] if token else [],
            vocabulary=name.endswith(_VOCABULARIES),
        ):
            if leak.kind == "secret":
                yield Refusal(
                    "a file holds what looks like a secret", f"{leak.shown} in {name}", "take it out"
                )
            else:
                yield Refusal(
                    "a file names a place on this machine", f"{leak.shown} in {name}", "take it out"
                )


def _text(path: Path) -> str:
    """All of a text file; of weights what their header says beside the tensors."""
    if path.suffix == _WEIGHTS:
        return "\n".join(f"{name} {value}" for name, value in read_metadata(path).items())
    return path.read_bytes().decode("utf-8", "replace")


def _card(pack: Pack) -> str | None:
    path = pack.path / CARD
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def _sha256(path: Path) -> str:
    return remembered("sha256", {path: file_stamp(path)}, "", lambda: hash_file(path))
