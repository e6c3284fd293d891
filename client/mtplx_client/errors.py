"""What a client raises: the daemon's typed errors, mirrored from status codes, and three of its own.

Owns no wire format (that is `rpc_errors`). Every class carries `what`, `value` and `fix`; `InvalidArgument`
also `field`, `ResourceExhausted` also `needed`, `available` and `retry_after_s`.
"""

from __future__ import annotations

from mtplxd.errors import (
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    MtplxError,
    NotFound,
    ResourceExhausted,
    Unavailable,
)

__all__ = [
    "BY_CODE",
    "Cancelled",
    "DataLoss",
    "DeadlineExceeded",
    "FailedPrecondition",
    "Internal",
    "InvalidArgument",
    "MtplxError",
    "NoDaemon",
    "NotAnswering",
    "NotFound",
    "ResourceExhausted",
    "Unavailable",
    "VersionMismatch",
]


class NoDaemon(Unavailable):
    """Nothing answers on the socket."""

    def __init__(self, socket: object) -> None:
        super().__init__(
            "no daemon is running on this socket", socket, "start one with `mtplxd` or `mtplx quickstart`"
        )


class NotAnswering(Unavailable):
    """A daemon listens on the socket and does not answer in time: it is busy, or its process is stopped."""

    def __init__(self, socket: object) -> None:
        super().__init__(
            "the daemon is there but does not answer",
            socket,
            "it may be busy: wait longer with --timeout, or see `mtplx logs`",
        )


class VersionMismatch(FailedPrecondition):
    """Client and daemon speak different protocols; `fix` says which side to update."""


BY_CODE: dict[str, type[MtplxError]] = {
    kind.code: kind
    for kind in (
        Cancelled,
        DataLoss,
        DeadlineExceeded,
        FailedPrecondition,
        Internal,
        InvalidArgument,
        NotFound,
        ResourceExhausted,
        Unavailable,
    )
}
"""The error class that mirrors a gRPC status name."""
