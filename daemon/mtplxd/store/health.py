"""Whether the store on disk can be written, why not, and when that is tried again. Pure: the clock is an argument.

Reading goes on in any state; what is read is checked by itself.
"""

from __future__ import annotations

import errno
import sqlite3

from mtplxd import files

FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
OPENING, READY, PAUSED, DEGRADED, CLOSED = "opening", "ready", "paused", "degraded", "closed"

_FIXES = {
    errno.ENOSPC: "free space on its volume",
    errno.EDQUOT: "free space within your quota",
    errno.EROFS: "its volume is read-only",
    errno.EACCES: "give this user access to the folder",
    errno.EPERM: "give this user access to the folder",
    errno.EIO: "check the disk",
    errno.EAGAIN: "another process uses it; end that one",
    errno.ENOENT: "its folder was removed, and is made again",
}


class Health:
    """`state` is OPENING, READY, PAUSED (a limit), DEGRADED (a fault) or CLOSED; `reason` is empty in READY."""

    def __init__(self) -> None:
        self.state, self.reason = OPENING, ""
        self.faults = 0
        self.last_fault = ""
        self._wait = FIRST_RETRY_S
        self._retry_at: float | None = None

    def may_try(self, now: float) -> bool:
        """Whether writing is worth a try; where the clock was set back it is."""
        if self.state == CLOSED or self._retry_at is None:
            return self.state != CLOSED
        return not self._retry_at - LAST_RETRY_S <= now < self._retry_at

    @property
    def faulty(self) -> bool:
        """Whether the latest try to write failed."""
        return self._retry_at is not None

    def note_fault(self, text: str, now: float) -> None:
        """Writing failed: nothing is tried for a while, which doubles up to a minute."""
        self.faults += 1
        self.state, self.reason, self.last_fault = DEGRADED, text, text
        self._retry_at, self._wait = now + self._wait, min(LAST_RETRY_S, 2 * self._wait)

    def note_pause(self, text: str) -> None:
        """A limit forbids writing; it is asked anew each time."""
        if not self.faulty:
            self.state, self.reason = PAUSED, text

    def note_written(self) -> None:
        """Writing works."""
        if self.state != CLOSED:
            self.state, self.reason = READY, ""
            self._wait, self._retry_at = FIRST_RETRY_S, None

    def close(self) -> None:
        """Nothing is written any more."""
        self.state, self.reason = CLOSED, ""


def is_full(error: BaseException | None) -> bool:
    """Whether it is room on the disk that is missing."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
    return isinstance(error, OSError) and files.is_full(error)


def describe(error: Exception) -> str:
    """What a user reads of a fault."""
    if isinstance(error, sqlite3.Error) and is_full(error):
        error = OSError(errno.ENOSPC, "its index: the disk is full")
    if isinstance(error, sqlite3.Error):
        return f"the prompt store cannot write its index ({error}): answers are right but not kept"
    if not isinstance(error, OSError):
        return (
            f"the prompt store failed ({type(error).__name__}): see the log; answers are right but not kept"
        )
    what = error.strerror or type(error).__name__
    fix = _FIXES.get(error.errno or 0, "look at its folder")
    return f"the prompt store cannot be written ({what}): {fix}; answers are right but not kept"
