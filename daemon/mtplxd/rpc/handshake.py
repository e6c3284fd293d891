"""The exchange of versions by metadata: what the daemon says of itself and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable

from mtplxd import PROTOCOL, __version__
from mtplxd.errors import FailedPrecondition, InvalidArgument

PROTOCOL_KEY = "mtplx-protocol"
VERSION_KEY = "mtplx-version"
CLIENT_KEY = "mtplx-client"
REQUEST_KEY = "mtplx-request-id"

Metadata = Iterable[tuple[str, str | bytes]]


def own_metadata(request_id: str) -> tuple[tuple[str, str], ...]:
    """What goes out before every answer."""
    return ((PROTOCOL_KEY, str(PROTOCOL)), (VERSION_KEY, __version__), (REQUEST_KEY, request_id))


def check_client(metadata: Metadata) -> None:
    """Refuses a client of another protocol; one that says nothing (grpcurl, health probes) is served."""
    said = read(metadata, PROTOCOL_KEY)
    if said is None:
        return
    if not (said.isascii() and said.isdigit() and len(said) < 10):
        raise InvalidArgument(
            "metadata is not a protocol number", said, f"send {PROTOCOL_KEY}: {PROTOCOL}", field=PROTOCOL_KEY
        )
    check_protocol(int(said), read(metadata, VERSION_KEY) or "unknown")


def check_protocol(protocol: int, version: str) -> None:
    """Raises FailedPrecondition saying which side to update."""
    if protocol == PROTOCOL:
        return
    if protocol > PROTOCOL:
        fix = f"update the daemon ({__version__}, protocol {PROTOCOL}) and restart it"
    else:
        fix = f"update the client, this daemon is {__version__} with protocol {PROTOCOL}"
    what = "client and daemon speak different protocols"
    raise FailedPrecondition(what, f"client {version}, protocol {protocol}", fix, reason="VERSION_MISMATCH")


def read(metadata: Metadata, key: str) -> str | None:
    """One metadata value as text."""
    for name, value in metadata:
        if name == key:
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return None
