"""Finds another tool that rules this machine's fans by the socket it listens on. Says nothing to it and never ends it.

Two who write the same fans undo each other's work, and each would read back what the other wrote: whoever was there
first keeps them.
"""

from __future__ import annotations

import socket
from pathlib import Path

SOCKETS = (
    ("ThermalForge", Path("/var/run/thermalforge.sock")),  # since its 0.2
    ("ThermalForge", Path("/tmp/thermalforge.sock")),
)
"""Where each listens, the newer place first."""
_PATIENCE_S = 0.5


def find_rival(sockets: tuple[tuple[str, Path], ...] = SOCKETS) -> str:
    """Who it is and where, in words; empty where nobody listens. One that lets nobody in is there all the same."""
    return next((f"{name} answers at {path}" for name, path in sockets if _listens(path)), "")


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PATIENCE_S)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False  # never there, or left behind by one that ended
        except PermissionError:
            return path.is_socket()
        except OSError:
            return False
    return True
