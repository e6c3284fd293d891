"""The job that keeps the daemon always on, for programs and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtplx_launchd.service import Standing


def document(found: Standing, system: str) -> dict[str, Any]:
    """All that is known of it; `plist` is the job's file, whatever its system calls it."""
    return {
        "label": found.label,
        "plist": str(found.path),
        "state": found.state,
        "pid": found.pid,
        "last_exit": found.last_exit,
        "system": system,
        "where": found.where or None,
        "interpreter": found.interpreter or None,
        "edited": found.edited,
    }


def lines(found: Standing, system: str) -> str:
    """A line a fact."""
    if not found.installed:
        return f"{found.label}: not installed: `mtplx service install`"
    facts = [
        ("label", found.label),
        ("state", found.state + (f", pid {found.pid}" if found.pid else "")),
        ("loaded", f"{found.where} of {system}" if found.where else "no: `mtplx service start`"),
        ("last exit", found.last_exit or ""),
        ("file", str(found.path)),
        ("runs", found.interpreter),
        ("note", "its file is not the one that was loaded: `mtplx service restart`" if found.edited else ""),
    ]
    return "\n".join(f"{name:<11}{value}" for name, value in facts if value)
