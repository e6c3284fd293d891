"""Thin clients of the daemon: a Python client, the `mtplx` command line and the gateway.

Owns requests, events and how they are shown. Never loads a model, never imports mlx, and knows of the daemon
only its packs, paths, settings, errors and version.

from mtplx_client import Client with Client() as client: for event in client.generate("Name three rivers.",
model="smollm2-135m"): ...

Names are imported when they are first used, so that the command line's help does not pay for gRPC.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtplx_client.aio import AsyncClient
    from mtplx_client.client import Client
    from mtplx_client.errors import MtplxError, NoDaemon, NotAnswering, VersionMismatch
    from mtplx_client.events import (
        Final,
        Logprobs,
        Progress,
        Reply,
        Sampler,
        Stats,
        Text,
        TokenLogprob,
        Usage,
    )

_HOMES = {
    "Client": "client",
    "AsyncClient": "aio",
    "Final": "events",
    "Logprobs": "events",
    "Progress": "events",
    "Reply": "events",
    "Sampler": "events",
    "Stats": "events",
    "Text": "events",
    "TokenLogprob": "events",
    "Usage": "events",
    "MtplxError": "errors",
    "NoDaemon": "errors",
    "NotAnswering": "errors",
    "VersionMismatch": "errors",
}

__all__ = [
    "AsyncClient",
    "Client",
    "Final",
    "Logprobs",
    "MtplxError",
    "NoDaemon",
    "NotAnswering",
    "Progress",
    "Reply",
    "Sampler",
    "Stats",
    "Text",
    "TokenLogprob",
    "Usage",
    "VersionMismatch",
]


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
