"""What people read of a probe and of a publication: a line a fact, the verdict last.

Both come as JSON documents whose fields the daemon decides; a fact that is not there is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mtplx_client.builds import Probed, Published
from mtplx_client.cli.render.words import counted, size

_WIDE = 12


def probe(found: Probed) -> str:
    """What could be built of it and what that takes."""
    told = found.document
    facts = [
        ("model", told.get("ref")),
        ("revision", told.get("revision")),
        ("family", _family(told)),
        ("head", _head(told.get("head"))),
        ("quantised", _quantised(told.get("quantisation"))),
        (
            "licence",
            told.get("licence") or ("none stated" if "licence" in told and told.get("family") else ""),
        ),
        ("size", _sizes(told)),
        ("download", _bytes(told, "bytes_download")),
        ("disk", _bytes(_table(told, "memory"), "disk")),
        ("memory", _memory(told)),
        *(("note", note) for note in told.get("notes") or ()),
        *(("because", reason) for reason in found.reasons),
        ("next", _next(told)),
    ]
    return "\n".join([*_lines(facts), found.verdict])


def publication(found: Published) -> str:
    """What is there now, or would be."""
    told = found.document
    files = told.get("files") or ()
    would = "would be put there" if told.get("dry_run") else "there"
    facts = [
        ("repo", told.get("url") or found.repo),
        ("commit", told.get("commit")),
        ("files", f"{counted(len(files), 'file')} ({size(told.get('bytes') or 0)}) {would}"),
        *(("", name) for name in files),
        *(("removed", name) for name in told.get("removed") or ()),
    ]
    return "\n".join(_lines(facts))


def _lines(facts: Iterable[tuple[str, Any]]) -> Iterable[str]:
    return (f"{name:<{_WIDE}}{value}" for name, value in facts if value)


def _family(told: Mapping[str, Any]) -> str:
    family, kind = told.get("family") or "", told.get("model_type") or ""
    return family if kind in ("", family) else f"{family} ({kind})"


def _head(head: Any) -> str:
    if not isinstance(head, dict):
        return ""
    if not head.get("present"):
        return "none"
    layers = counted(int(head.get("layers") or 0), "layer")
    return (
        f"{head.get('layout')}, {head.get('tensors')} tensors, {layers}, depth up to {head.get('depth_max')}"
    )


def _quantised(stated: Any) -> str:
    if not isinstance(stated, dict):
        return ""
    block = stated.get("block")
    parts = [
        str(stated.get("method") or ""),
        f"{stated['bits']} bits" if stated.get("bits") else "",
        f"groups of {stated['group_size']}" if stated.get("group_size") else "",
        f"blocks of {'×'.join(map(str, block))}" if isinstance(block, list) else "",
    ]
    return ", ".join(part for part in parts if part)


def _sizes(told: Mapping[str, Any]) -> str:
    body, head = told.get("bytes_body") or 0, told.get("bytes_head") or 0
    return f"{size(body + head)} (body {size(body)}, head {size(head)})" if body else ""


def _memory(told: Mapping[str, Any]) -> str:
    memory = _table(told, "memory")
    if not memory.get("peak"):
        return ""
    fits = "fits" if told.get("fits_this_machine") else "does not fit"
    return f"{size(memory['peak'])} at its peak, {fits} into the {size(memory.get('available') or 0)} of this machine"


def _next(told: Mapping[str, Any]) -> str:
    ways = str(told.get("next") or "")
    return f"`{ways}`" if ways.startswith("mtplx ") else ways


def _bytes(told: Mapping[str, Any], name: str) -> str:
    return size(told[name]) if told.get(name) else ""


def _table(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = told.get(name)
    return found if isinstance(found, dict) else {}
