"""Fans during a measurement that a client times itself: held while it runs, and what its rows are labelled with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mtplx_client.client import Client
from mtplx_client.fans import Thermal


@contextmanager
def fans_held(client: Client, reason: str, *, wanted: bool) -> Iterator[Callable[[], Thermal]]:
    """Fans are held while the block runs, where the helper is installed; without `wanted` they are left alone. What it
    yields tells fan mode, thermal state and power mode, and is to be called inside.
    """
    if not wanted:
        yield client.fans
        return
    stream = client.hold_fans(reason)
    try:
        next(stream)
        yield client.fans
    finally:
        stream.close()


def labels(found: Thermal) -> dict[str, str | None]:
    """The fields that every row of a measurement carries."""
    return {"fan_mode": found.fan_mode or None, "thermal": found.state or None, "power": found.power or None}
