"""`mtplx forge probe`: whether a pack can be made of a checkpoint, from its configs and headers alone.

Nothing is fetched but those, nothing is written. What the tensors mean is said by the one detector, what can be run by
`bodies`; here both become one of four verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from mtplxd.errors import DataLoss, NotFound, UnsupportedSource
from mtplxd.forge.licence import licence_of
from mtplxd.forge.needs import Needs, needs_of
from mtplxd.forge.places import list_model
from mtplxd.forge.shipped import ships_head, why_none
from mtplxd.forge.storage import storage_faults
from mtplxd.packs.bodies import body_faults, body_notes
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.folder import Folder, LocalFolder
from mtplxd.packs.hub.cache import find_content, find_snapshot
from mtplxd.packs.hub.errors import AnotherFile
from mtplxd.packs.hub.headers import HubFolder, open_folder
from mtplxd.packs.hub.names import find_repository, parse_repository
from mtplxd.packs.hub.plan import choose_wanted
from mtplxd.packs.inspection import Room, head_document, quantisation_of
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.resolver import find_folder, find_pack
from mtplxd.packs.senses import say_left_out, senses_of
from mtplxd.paths import Home, HuggingFace

Verdict = Literal["forgeable", "already_a_pack", "no_mtp_head", "unsupported_source"]


@dataclass(frozen=True)
class Probe:
    """What was found of the checkpoint `ref`. `next` is what to do, `revision` its commit where it is on the Hub.

    `bytes_source` is of the files that a build needs, `bytes_download` of those that are not here yet. What could not
    be read of an unsupported one is empty, 0 or None.
    """

    ref: str
    verdict: Verdict
    reasons: tuple[str, ...]
    next: str
    notes: tuple[str, ...] = ()
    revision: str | None = None
    family: str = ""
    model_type: str = ""
    depth_max: int = 0
    head: Mapping[str, Any] | None = None
    quantisation: Mapping[str, Any] | None = None
    licence: str | None = None
    bytes_body: int = 0
    bytes_head: int = 0
    bytes_source: int = 0
    bytes_download: int = 0
    needs: Needs | None = None
    available: int = 0

    @property
    def fits(self) -> bool:
        """Whether the build's peak fits into this machine while nothing else is in memory."""
        return self.needs is not None and self.needs.memory <= self.available

    def can_build(self, *, train: bool) -> bool:
        """Whether `forge build`, with or without `--train`, has something to do."""
        return self.verdict != "unsupported_source" and (train or self.verdict != "no_mtp_head")


@dataclass(frozen=True)
class _Offer:
    """A checkpoint's files, wherever they are, with the sizes of those below the folder too."""

    folder: Folder
    sizes: Mapping[str, int]
    missing: Mapping[str, int]
    revision: str | None = None

    @property
    def wanted(self) -> list[str]:
        return choose_wanted(self.folder, self.sizes)


def probe(name: str, home: Home, hugging_face: HuggingFace, room: Room) -> Probe:
    """The verdict over a folder, a pack of the home or `org/name[@revision]`.

    Raises NotFound, FailedPrecondition (gated, or headers too large to read from afar), Unavailable, InvalidArgument:
    those say nothing of the checkpoint.
    """
    offer = _open(name, home, hugging_face)
    try:
        wanted = offer.wanted
        pack = read_pack(offer.folder, name)
    except AnotherFile:
        raise
    except (UnsupportedSource, DataLoss, NotFound) as error:
        shown = "" if error.value is None else f" ({error.value})"
        return _unsupported(name, offer, [f"{error.what}{shown}"])
    head = detect_head(pack)
    verdict, reasons = _judge(pack, head)
    download = sum(offer.missing.get(file, 0) for file in wanted)
    licence = licence_of(offer.folder)
    return Probe(
        ref=name,
        verdict=verdict,
        reasons=tuple(reasons),
        next=_next(name, offer, verdict),
        notes=(
            *head.notes,
            *body_notes(pack.config),
            *say_left_out(senses_of(pack.body_tensors)),
            *_licence_notes(licence),
        ),
        revision=offer.revision,
        family=pack.family,
        model_type=pack.model_type,
        depth_max=head.depth_max,
        head=head_document(head),
        quantisation=quantisation_of(pack),
        licence=licence,
        bytes_body=pack.bytes_body,
        bytes_head=pack.bytes_head,
        bytes_source=sum(offer.sizes[file] for file in wanted),
        bytes_download=download,
        needs=needs_of(pack, headless=not head.present, widen=room.widens, download=download),
        available=room.available,
    )


def document(found: Probe) -> dict[str, Any]:
    """The JSON form, with the field names that programs rely on."""
    fields = asdict(found)
    fields |= {"reasons": list(found.reasons), "notes": list(found.notes)}
    fields["memory"] = {**(found.needs.document() if found.needs else {}), "available": found.available}
    del fields["needs"], fields["available"]
    return {**fields, "fits_this_machine": found.fits}


def _open(name: str, home: Home, hugging_face: HuggingFace) -> _Offer:
    place = find_folder(name, home)
    if place is None and find_repository(name):
        repository = parse_repository(name)
        place = find_snapshot(repository, hugging_face.cache) if hugging_face.offline else None
        if place is None:
            return _offer_of(open_folder(name, hugging_face), name, hugging_face)
    if place is None or (place.is_dir() and place.parent == home.packs):
        place = find_pack(
            name, home, hugging_face
        ).path  # a damaged pack, and an unknown name, are said as elsewhere
    sizes = {file: found.stat().st_size for file, found in list_model(place).items()}
    return _Offer(LocalFolder(place), sizes, {})


def _offer_of(folder: HubFolder, name: str, hugging_face: HuggingFace) -> _Offer:
    repository = parse_repository(name)
    sizes = {file: remote.size for file, remote in folder.files.items()}
    missing = {
        file: remote.size
        for file, remote in folder.files.items()
        if not find_content(repository, file, remote.etag, remote.size, hugging_face.cache)
    }
    return _Offer(folder, sizes, missing, folder.commit)


def _judge(pack: Pack, head: HeadReport) -> tuple[Verdict, list[str]]:
    if faults := [*body_faults(pack.config), *storage_faults(pack), *head.obstacles]:
        return "unsupported_source", faults
    if head.present and pack.manifest is not None:
        return "already_a_pack", [f"it has a contract of its own and a head ({head.layout})"]
    if not ships_head(head):
        return "no_mtp_head", why_none(head)
    return "forgeable", [f"it ships an MTP head ({head.layout}, {head.tensors} tensors)"]


def _unsupported(name: str, offer: _Offer, reasons: list[str]) -> Probe:
    verdict: Verdict = "unsupported_source"
    return Probe(name, verdict, tuple(reasons), _next(name, offer, verdict), revision=offer.revision)


def _next(name: str, offer: _Offer, verdict: Verdict) -> str:
    repository = find_repository(name)
    short = Path(repository.id).name if repository else offer.folder.path.name
    build = f"mtplx forge build {name} --name {short}-mtp"
    return {
        "forgeable": build,
        "already_a_pack": f"mtplx pull {name}" if offer.revision else f"mtplx tune {name}",
        "no_mtp_head": f"{build} --train",
        "unsupported_source": "choose another checkpoint",
    }[verdict]


def _licence_notes(licence: str | None) -> tuple[str, ...]:
    return () if licence else ("it states no licence: a pack of it can be used, and not published",)
