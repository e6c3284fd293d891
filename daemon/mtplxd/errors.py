"""The typed errors of every room; what a status code or an exit code makes of them is decided at the edges.

A message reads `what (value): what to do`, in one line, and never carries prompt or answer text.
"""

from __future__ import annotations


class MtplxError(Exception):
    """Base of all errors a user may meet. `code` is the gRPC status name that mirrors it."""

    code = "INTERNAL"

    def __init__(self, what: str, value: object = None, fix: str = "", **details: object) -> None:
        self.what = what
        self.value = value
        self.fix = fix
        self.details = details
        super().__init__(str(self))

    def __str__(self) -> str:
        shown = "" if self.value is None else f" ({self.value})"
        todo = f": {self.fix}" if self.fix else ""
        return f"{self.what}{shown}{todo}"


class InvalidArgument(MtplxError):
    """A value that cannot be used; `field` names it."""

    code = "INVALID_ARGUMENT"

    def __init__(self, what: str, value: object = None, fix: str = "", *, field: str = "") -> None:
        super().__init__(what, value, fix)
        self.field = field


class NotFound(MtplxError):
    """No such model, pack or request."""

    code = "NOT_FOUND"


class FailedPrecondition(MtplxError):
    """The request is sound, but the state does not allow it (tier, versions, permissions)."""

    code = "FAILED_PRECONDITION"


class UnsupportedSource(FailedPrecondition):
    """A checkpoint of which nothing here can make a pack, whatever is done about it."""


class ResourceExhausted(MtplxError):
    """Memory, disk or queue: `needed` and `available` are bytes (or places in the queue)."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(
        self,
        what: str,
        value: object = None,
        fix: str = "",
        *,
        needed: int = 0,
        available: int = 0,
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(what, value, fix)
        self.needed = needed
        self.available = available
        self.retry_after_s = retry_after_s


class Unavailable(MtplxError):
    """Starting, draining, or not there at all."""

    code = "UNAVAILABLE"


class DeadlineExceeded(MtplxError):
    """The client's deadline passed."""

    code = "DEADLINE_EXCEEDED"


class Cancelled(MtplxError):
    """Somebody asked for the end."""

    code = "CANCELLED"


class DataLoss(MtplxError):
    """A file that should be whole is not."""

    code = "DATA_LOSS"


class Internal(MtplxError):
    """A bug of ours."""

    code = "INTERNAL"
