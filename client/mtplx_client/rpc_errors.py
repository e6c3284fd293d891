"""Turns a gRPC status into a typed error, with its google.rpc details.

Owns the reading of ErrorInfo (what, value, fix, needed, available), BadRequest (field) and RetryInfo (delay).
Decides nothing about retries or exit codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from mtplx_client.errors import (
    BY_CODE,
    Internal,
    InvalidArgument,
    MtplxError,
    NoDaemon,
    ResourceExhausted,
    VersionMismatch,
)

_DETAILS = "grpc-status-details-bin"


def error_from(failure: grpc.RpcError, socket: object) -> MtplxError:
    """The typed error of a failed call on `socket`."""
    code, info, field, retry_s = _read(failure)
    if info is None:
        return _bare(code, failure.details() or "", socket)
    said = dict(info.metadata)
    what = said.get("what") or failure.details() or code
    value, fix = said.get("value") or None, said.get("fix", "")
    kind = BY_CODE.get(code, Internal)
    if kind is InvalidArgument:
        return InvalidArgument(what, value, fix, field=said.get("field", "") or field)
    if kind is ResourceExhausted:
        return ResourceExhausted(
            what,
            value,
            fix,
            needed=_whole(said.get("needed")),
            available=_whole(said.get("available")),
            retry_after_s=retry_s,
        )
    if info.reason == "VERSION_MISMATCH":
        return VersionMismatch(what, value, fix)
    return kind(what, value, fix, retry_after_s=retry_s, reason=info.reason)


def is_lost_connection(failure: grpc.RpcError) -> bool:
    """Whether the transport failed, as against a daemon that answered UNAVAILABLE itself."""
    code, info, _, _ = _read(failure)
    return code == "UNAVAILABLE" and info is None


def _bare(code: str, said: str, socket: object) -> MtplxError:
    """An error without our details: the transport's, a deadline's, or another server's."""
    if code == "UNAVAILABLE":
        return NoDaemon(socket)
    if code == "UNIMPLEMENTED":
        return VersionMismatch("the daemon does not know this call", None, "update the daemon and restart it")
    if code == "RESOURCE_EXHAUSTED":  # ours have details: this is gRPC's limit
        return InvalidArgument("the request is longer than a message may be", said, "shorten it")
    kind = BY_CODE.get(code, Internal)
    if code == "DEADLINE_EXCEEDED":
        return kind("the daemon did not finish in time", None, "allow more with --timeout")
    if code == "CANCELLED":
        return kind("the request was cancelled")
    fix = "see `mtplx logs`" if kind is Internal else ""
    return kind(said.splitlines()[0] if said else code.lower(), None, fix)


def _read(failure: grpc.RpcError) -> tuple[str, Any, str, float]:
    """Code name, ErrorInfo or None, the offending field, and the retry delay in seconds."""
    info, field, retry_s = None, "", 0.0
    for detail in _details(failure.trailing_metadata() or ()):
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            bad = error_details_pb2.BadRequest()
            detail.Unpack(bad)
            field = bad.field_violations[0].field if bad.field_violations else ""
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            detail.Unpack(retry)
            retry_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    return failure.code().name, info, field, retry_s


def _details(trailing: Iterable[tuple[str, Any]]) -> list[Any]:
    for key, value in trailing:
        if key == _DETAILS:
            return list(status_pb2.Status.FromString(value).details)
    return []


def _whole(text: str | None) -> int:
    return int(text) if text and text.lstrip("-").isdigit() else 0
