"""The one place where typed errors become gRPC statuses with google.rpc details. It raises none of its own.

A status message is one line. No traceback leaves the process: a bug's goes to the log, its request id out.
"""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from mtplxd.errors import Internal, InvalidArgument, MtplxError, ResourceExhausted
from mtplxd.rpc.calls import request_id

log = logging.getLogger(__name__)

DOMAIN = "mtplxd"
_MESSAGE_LIMIT, _VALUE_LIMIT = 1000, 600
"""Characters; statuses travel in headers, which are refused above 8 KiB."""


async def abort(context: Any, error: Exception) -> NoReturn:
    """End the call with the status of an error. Never returns."""
    status = rpc_status.to_status(status_of(typed(error)))
    await context.abort(status.code, status.details, status.trailing_metadata)
    raise AssertionError("abort returned")


def typed(error: Exception) -> MtplxError:
    """The error itself, or an Internal for one that no room expects; the log gets that one's traceback."""
    if isinstance(error, MtplxError) and not isinstance(error, Internal):
        log.info("refused: %s, %s", type(error).__name__, error.what)
        return error
    log.error("a bug in request %s", request_id.get(), exc_info=error)
    return Internal("the daemon met a bug", f"request {request_id.get()}", "see `mtplx logs`")


def status_of(error: MtplxError) -> status_pb2.Status:
    """The google.rpc.Status of a typed error."""
    details = [_error_info(error)]
    if isinstance(error, InvalidArgument) and error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=error.field, description=_line(error.what, _VALUE_LIMIT)
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, ResourceExhausted) and error.retry_after_s > 0:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(error.retry_after_s * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    status = status_pb2.Status(
        code=code_pb2.Code.Value(error.code), message=_line(str(error), _MESSAGE_LIMIT)
    )
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _error_info(error: MtplxError) -> Any:
    said = {
        "what": error.what,
        "value": "" if error.value is None else str(error.value),
        "fix": error.fix,
        "request_id": request_id.get(),
    }
    if isinstance(error, InvalidArgument):
        said["field"] = error.field
    if isinstance(error, ResourceExhausted):
        said |= {"needed": str(error.needed), "available": str(error.available)}
    reason = str(error.details.get("reason", error.code))
    metadata = {key: _line(text, _VALUE_LIMIT) for key, text in said.items() if text}
    return error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)


def _line(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def is_status(error: Exception) -> bool:
    """Whether grpc itself raised it to end a call whose status is set already."""
    return isinstance(error, grpc.aio.AbortError)
