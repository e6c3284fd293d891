"""What has arrived of one file that another process is fetching, beside others that it fetches at the same time.

A file grows under the name of its hash, and is renamed when it is whole.
"""

from __future__ import annotations

from pathlib import Path

from support.hub_server import HubServer


def bytes_arrived(hub: HubServer, repository: str, file: str, arrivals: Path) -> int:
    """Of `file`, as the Hub has it now, in the folder of arrivals; 0 before its first and after its last byte.

    The name is looked at, not the size: other files that are fetched beside it are as large for a while.
    """
    etag = hub.repositories[repository].revisions["main"].files[file].sha256
    try:
        return (arrivals / f"{etag}.part").stat().st_size
    except FileNotFoundError:
        return 0
