"""What is kept on disk of prompts, as a document and as lines for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtplx_client.cli.render.words import counted, size
from mtplx_client.replies import StoreState
from mtplx_client.store import Reason, StoreStats


def document(found: StoreStats) -> dict[str, Any]:
    """Everything that is counted."""
    return {
        "blocks": found.blocks,
        "bytes": found.bytes,
        "raw_bytes": found.raw_bytes,
        "hits": found.hits,
        "misses": found.misses,
        "miss_reasons": _by_name(found.miss_reasons),
        "quarantined": found.quarantined,
        "bytes_written": found.bytes_written,
        "tokens_found": found.tokens_found,
        "tokens_from_disk": found.tokens_from_disk,
        "memory_bytes": found.memory_bytes,
        "block_reads": found.block_reads,
        "unread_reasons": _by_name(found.unread_reasons),
        "drop_reasons": _by_name(found.drop_reasons),
        "evicted": found.evicted,
        "reclaimed": found.reclaimed,
        "waiting": found.waiting,
        "state": found.state,
        "reason": found.reason or None,
        "folder": found.folder,
        "limits": {
            "size": found.size_limit,
            "free_floor": found.free_floor,
            "hourly_writes": found.hourly_writes,
            "queue": found.queue_limit,
        },
        "block_tokens": found.block_tokens,
        "sessions": {"count": found.sessions, "bytes": found.session_bytes},
    }


def state(found: StoreState) -> dict[str, Any]:
    """What status has of it."""
    return {
        "bytes": found.bytes,
        "blocks": found.blocks,
        "sessions": found.sessions,
        "state": found.state or None,
        "reason": found.reason or None,
    }


def words(found: StoreState) -> str:
    """What status says of it, in one line."""
    holding = f"{counted(found.blocks, 'block')} and {counted(found.sessions, 'session')}"
    parts = [found.state, f"{size(found.bytes)} in {holding}"]
    return ", ".join([*parts, found.reason] if found.reason else parts) if found.state else ""


def lines(found: StoreStats) -> str:
    """All of it, a line a fact."""
    packed = f", {found.bytes / found.raw_bytes:.2f} of raw" if found.raw_bytes else ""
    facts = [
        ("state", f"{found.state}{f': {found.reason}' if found.reason else ''}"),
        ("folder", found.folder),
        ("blocks", f"{found.blocks} of {found.block_tokens} tokens, {size(found.bytes)}{packed}"),
        ("limits", f"{size(found.size_limit)}, stops below {size(found.free_floor)} free, "
                   f"{size(found.hourly_writes)} an hour, {size(found.queue_limit)} waiting"),
        ("sessions", f"{found.sessions}, {size(found.session_bytes)}"),
        ("in memory", size(found.memory_bytes)),
        ("hits", f"{found.hits} prompts, {found.tokens_found} tokens, {found.tokens_from_disk} of them from disk"),
        ("misses", _counted(found.misses, found.miss_reasons)),
        ("unread", _counted(sum(reason.count for reason in found.unread_reasons), found.unread_reasons)),
        ("dropped", _counted(sum(reason.count for reason in found.drop_reasons), found.drop_reasons)),
        ("set aside", f"{found.quarantined} damaged" if found.quarantined else "none"),
        ("evicted", str(found.evicted)),
        ("written", f"{size(found.bytes_written)}, {size(found.waiting)} on their way"),
    ]  # fmt: skip
    return "\n".join(f"{name:<10}{value}" for name, value in facts)


def _counted(total: int, reasons: Sequence[Reason]) -> str:
    named = ", ".join(f"{reason.count} {reason.name.replace('_', ' ')}" for reason in reasons)
    return f"{total} ({named})" if named else str(total)


def _by_name(reasons: Sequence[Reason]) -> dict[str, int]:
    return {reason.name: reason.count for reason in reasons}
