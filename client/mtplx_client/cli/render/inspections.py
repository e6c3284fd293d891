"""What people read of an inspection: a line a fact, the verdict first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from mtplxd.packs.inspection import Inspection, quantisation_of

from mtplx_client.cli.render.words import size

_SHOWN = 6
_Facts = Iterator[tuple[str, str]]


def report(found: Inspection) -> str:
    """The whole report."""
    pack = found.pack
    facts = [
        ("name", pack.name),
        ("path", str(pack.path) if pack.at_hand else ""),
        ("tier", found.tier),
        *(("because", reason) for reason in found.reasons),
        ("runs", _runs(found)),
        ("family", pack.family if pack.family == pack.model_type else f"{pack.family} ({pack.model_type})"),
        *_head_facts(found),
        ("quantised", _quantised(found)),
        (
            "size",
            f"{size(pack.bytes_body + pack.bytes_head)} (body {size(pack.bytes_body)}, head {size(pack.bytes_head)})",
        ),
        ("memory", _memory(found)),
        ("context", f"{pack.context} tokens" if pack.context else ""),
        *(("note", note) for note in found.notes),
    ]
    return "\n".join(f"{name:<10}{value}" for name, value in facts if value)


def refusal(found: Inspection) -> tuple[str, str]:
    """Why it does not run here as it is, and the ways on."""
    if not found.can_run:
        return f"it does not run as it is, {found.tier}", _way_on(found)
    needed, room = size(found.memory), size(found.room)
    return f"it does not fit this machine, {needed} needed and {room} to be had", "choose a smaller one"


def _runs(found: Inspection) -> str:
    if found.can_run:
        return "yes"
    return f"not as it is: {_way_on(found)}" if found.needs else "no"


def _way_on(found: Inspection) -> str:
    if not found.pack.at_hand:
        return f"`mtplx pull {shlex.quote(found.ref)}` first"
    if found.needs == "--force":
        return f"run `mtplx verify {shlex.quote(found.ref)}`, or add --force"
    if found.needs == "--plain":
        return "add --plain to decode plainly"
    return "no option helps"


def _head_facts(found: Inspection) -> _Facts:
    head = found.head
    if not head.present:
        yield "head", "none"
        return
    layers = f"{head.layers} layer{'s' if head.layers != 1 else ''}"
    names = f"{head.prefix}*" if head.prefix else "a checkpoint of its own"
    yield "head", f"{head.layout}, {names}, {head.tensors} tensors, {layers}, depth up to {head.depth_max}"
    yield "missing", _some(head.missing)
    yield "unused", _some(head.extra)
    yield "wrong", _some(head.misshapen)
    yield "takes", ", ".join(f"{part} from {name}" for part, name in sorted(head.aliases.items()))


def _quantised(found: Inspection) -> str:
    stated = quantisation_of(found.pack)
    if not stated:
        return "no"
    parts = [str(stated["method"])]
    parts += [f"{stated['bits']} bits"] if "bits" in stated else []
    parts += [f"groups of {stated['group_size']}"] if "group_size" in stated else []
    parts += (
        [f"blocks of {'×'.join(map(str, stated['block']))}"] if isinstance(stated.get("block"), list) else []
    )
    return ", ".join(parts)


def _memory(found: Inspection) -> str:
    verdict = "fits" if found.fits else "does not fit"
    return f"{verdict}: {size(found.memory)} needed, {size(found.room)} to be had for one model"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)}: {', '.join(names[:_SHOWN])}{more}" if names else ""
