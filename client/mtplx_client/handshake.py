"""The exchange of versions: what the client says of itself and what it accepts from the daemon.

Owns the metadata keys. A different protocol is refused with the side to update; a different version alone is
fine.
"""

from __future__ import annotations

from collections.abc import Iterable

from mtplxd import PROTOCOL, __version__

from mtplx_client.errors import VersionMismatch

PROTOCOL_KEY = "mtplx-protocol"
VERSION_KEY = "mtplx-version"
CLIENT_KEY = "mtplx-client"


def own_metadata(client_id: str) -> tuple[tuple[str, str], ...]:
    """What goes with every call; `client_id` is whom the daemon's queue is fair to."""
    return ((PROTOCOL_KEY, str(PROTOCOL)), (VERSION_KEY, __version__), (CLIENT_KEY, client_id))


def check_daemon(metadata: Iterable[tuple[str, str | bytes]]) -> None:
    """Raise VersionMismatch unless the daemon's initial metadata names this client's protocol."""
    said = {key: value.decode() if isinstance(value, bytes) else value for key, value in metadata}
    protocol = said.get(PROTOCOL_KEY, "")
    if protocol == str(PROTOCOL):
        return
    version = said.get(VERSION_KEY) or "unknown"
    if protocol.isdigit() and int(protocol) > PROTOCOL:
        fix = f"update this client ({__version__}, protocol {PROTOCOL})"
    else:
        fix = f"update the daemon and restart it (this client is {__version__}, protocol {PROTOCOL})"
    raise VersionMismatch(
        "client and daemon speak different protocols", f"daemon {version}, protocol {protocol or 'none'}", fix
    )
