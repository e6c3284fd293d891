"""The step *extract*: a checkpoint's head becomes the sidecar of a pack, under the names it was published with.

Whether there is a head, and whether it is whole, says the one detector; how it must be fed is written down as the
source says it, and tried by `calibrating`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss, FailedPrecondition, InvalidArgument
from mtplxd.families.feeding_in_force import settings_in_force
from mtplxd.families.head_conversion import is_packed, pack_matrices, read_plain
from mtplxd.forge.arrays import Progress, nbytes_of, write_file
from mtplxd.forge.contract import SWITCHES, declare_head
from mtplxd.forge.pacing import IsCancelled, Tell
from mtplxd.forge.widths import GROUP_SIZE, check_head_width
from mtplxd.packs.binding import check_head, differing_copies
from mtplxd.packs.contents import CONFIG, SIDECARS
from mtplxd.packs.detector import HeadReport
from mtplxd.packs.fetch import hash_file
from mtplxd.packs.folder import LocalFolder
from mtplxd.packs.hub.cache import list_snapshot
from mtplxd.packs.hub.plan import choose_wanted
from mtplxd.packs.landing import check_space, disk_errors
from mtplxd.packs.layouts.stored import scale_block
from mtplxd.packs.pack import ASSISTANT, PAIR, Pack, read_pack

STAGE = "extract"
SIDECAR = SIDECARS[0]
WAYS_ON = "train one with --train, or use the model as it is"


@dataclass(frozen=True)
class Extraction:
    """What was taken out. `file` is the head's in the pack, `dtype` bf16 or packed, `bits` where it was packed here.

    `settings` are how it is fed as family and source say; `aliases` name the body's tensor for each part that is the
    body's, `shared` are copies of it that were left out. `depth_max` is the family's or the source's.
    """

    file: str
    sha256: str
    layout: str
    scheme: str
    dtype: str
    bits: int | None
    packed: int
    tensors: int
    layers: int
    depth_max: int
    bytes: int
    settings: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "file": self.file,
            "sha256": self.sha256,
            "layout": self.layout,
            "scheme": self.scheme,
            "dtype": self.dtype,
            "bits": self.bits,
            "packed": self.packed,
            "tensors": self.tensors,
            "layers": self.layers,
            "depth_max": self.depth_max,
            "bytes": self.bytes,
            "settings": dict(self.settings),
            "aliases": dict(self.aliases),
            "shared": list(self.shared),
            "notes": list(self.notes),
        }


def extract_head(
    source: Path,
    out: Path,
    head_bits: int | None,
    allow_degraded: bool,
    tell: Tell,
    cancelled: IsCancelled,
) -> Extraction:
    """Writes the head of the checkpoint in `source` into the folder `out`, and what it says of it into the contract.

    Raises FailedPrecondition where there is no head or not a whole one, InvalidArgument for bits that are not allowed,
    DataLoss for damaged files, ResourceExhausted on a full disk, Cancelled.
    """
    check_head_width(head_bits, allowed=allow_degraded)
    pack = read_pack(source)
    report = check_head(pack)
    if not report.present:
        raise FailedPrecondition("this checkpoint has no MTP head", pack.name, WAYS_ON)
    if not report.driven:
        raise FailedPrecondition(
            "no module here drives this head", f"{report.layout}, {report.scheme}", WAYS_ON
        )
    out.mkdir(parents=True, exist_ok=True)
    with disk_errors(out):
        found = (
            _copy_assistant(pack, report, out, head_bits, tell, cancelled)
            if pack.assistant
            else _write_sidecar(pack, report, out, head_bits, tell, cancelled)
        )
        declare_head(out, pack.manifest, found.settings)
    return replace(found, aliases=_read_back(out, report).aliases)


def _write_sidecar(
    pack: Pack, report: HeadReport, out: Path, bits: int | None, tell: Tell, cancelled: IsCancelled
) -> Extraction:
    settings = settings_in_force(pack, report)
    shared = tuple(sorted(report.copies.keys() - set(differing_copies(report, pack.body_tensors))))
    located = {name: place for name, place in report.located.items() if name not in shared}
    tensors = read_plain(located, scale_block({**pack.config, **pack.text_config}))
    was_packed, packed = is_packed(tensors), 0
    if bits is not None:
        if was_packed:
            raise InvalidArgument(
                "this head is packed already", f"head_bits {bits}", "leave it out", field="head_bits"
            )
        tensors, packed = pack_matrices(tensors, bits, GROUP_SIZE)
    named = {name.removeprefix(report.wrap): array for name, array in tensors.items()}
    count, size = len(named), nbytes_of(named)
    check_space(size, out)
    digest = write_file(out / SIDECAR, named, Progress(STAGE, size, tell, cancelled), dict(report.metadata))
    return Extraction(
        file=SIDECAR,
        sha256=digest,
        layout=report.layout,
        scheme=report.scheme,
        dtype="packed" if was_packed or packed else "bf16",
        bits=bits,
        packed=packed,
        tensors=count,
        layers=report.layers,
        depth_max=report.depth_max,
        bytes=size,
        settings={name: getattr(settings, name) for name in SWITCHES} if settings else {},
        shared=shared,
        notes=(*report.notes, *_notes(was_packed, packed, bits)),
    )


def _copy_assistant(
    pack: Pack, report: HeadReport, out: Path, bits: int | None, tell: Tell, cancelled: IsCancelled
) -> Extraction:
    """A drafter is a checkpoint of its own, and stays one; what lies beside it and is not read stays where it is."""
    if bits is not None:
        raise InvalidArgument(
            "a drafter is not packed here", f"head_bits {bits}", "leave it out", field="head_bits"
        )
    assert pack.assistant is not None
    source, home = pack.assistant.path, out / ASSISTANT
    files = [source / name for name in choose_wanted(LocalFolder(source), list_snapshot(source))]
    total = sum(path.stat().st_size for path in files)
    check_space(total, out)
    progress = Progress(STAGE, total, tell, cancelled)
    for path in files:
        progress.check()
        placed = home / path.relative_to(source)
        placed.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, placed)
        progress.step(path.stat().st_size, path.name)
    shutil.copyfile(pack.path / PAIR, out / PAIR)
    weights = next(iter(pack.assistant.headers)).name
    return Extraction(
        file=f"{ASSISTANT}/{weights}",
        sha256=hash_file(home / weights),
        layout=report.layout,
        scheme=report.scheme,
        dtype="as published",
        bits=None,
        packed=0,
        tensors=report.tensors,
        layers=report.layers,
        depth_max=report.depth_max,
        bytes=pack.bytes_head,
        notes=report.notes,
    )


def _read_back(out: Path, report: HeadReport) -> HeadReport:
    """What the detector finds in the pack; without a body yet only the head's file is there, and its hash was read.

    Raises DataLoss where the pack has not the head that was taken out.
    """
    if not (out / CONFIG).is_file():
        return report
    found = check_head(read_pack(out))
    if (found.scheme, found.layers, found.depth_max) != (report.scheme, report.layers, report.depth_max):
        raise DataLoss(
            "the extracted head reads back as another one", found.scheme or "none", "resume the build"
        )
    return found


def _notes(was_packed: bool, packed: int, bits: int | None) -> tuple[str, ...]:
    if was_packed:
        return ("its head was published packed and stays so",)
    return (f"degraded head: {packed} of its matrices are packed, {bits} bits",) if packed else ()
