"""Keeps the engine for one long work and tells a stream how far it is. What the work is, `tune` says."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mtplxd.engine.engine import Engine
from mtplxd.residency.entry import Lease
from mtplxd.rpc.bridge import Bridge
from mtplxd.rpc.leasing import until_handed_on
from mtplxd.tune.measure import Poll, Progress

T = TypeVar("T")
Say = Callable[[Progress], None]

_PROGRESS_BOUND = 64


async def hold_engine(
    engine: Engine,
    lease: Lease,
    reason: str,
    work: Callable[[Say, Poll], T],
    tell: Callable[[Progress], Awaitable[None]],
) -> T:
    """Runs `work` on the engine thread; it says its progress, and its poll asks for the end once this is cancelled.

    Others wait with `reason`. The lease lasts until the engine is free again, however this ends.
    """
    gone = threading.Event()
    steps: Bridge[Progress | None] = Bridge(_PROGRESS_BOUND)

    def say(step: Progress) -> None:
        engine.beat()
        steps.put(step)

    def poll() -> str | None:
        engine.beat()
        return "client" if gone.is_set() else None

    with until_handed_on(lease):
        future = engine.call(lambda: work(say, poll), reason)
    future.add_done_callback(lambda _: lease.release())
    future.add_done_callback(lambda _: steps.finish(None))
    try:
        while (step := await steps.get()) is not None:
            await tell(step)
        return future.result()
    finally:
        gone.set()
        future.cancel()
        steps.close()
