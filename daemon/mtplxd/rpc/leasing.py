"""Waits on the event loop for a model that residency loads, reporting its progress. No lease is ever lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from mtplxd.errors import InvalidArgument
from mtplxd.residency.entry import Lease
from mtplxd.residency.manager import Residency
from mtplxd.rpc.bridge import Bridge

Report = Callable[[int, int], Awaitable[None]]
"""Takes tensors done and in all."""

_PROGRESS_BOUND = 16
_SHARES = 20
"""Steps of a load that are told, beside its begin; a model may have a thousand tensors."""


async def acquire(residency: Residency, files: Executor, name: str, report: Report, **wish: Any) -> Lease:
    """`Residency.acquire` for the loop: same wishes, same errors. Cancelling it gives the model up."""
    steps: Bridge[tuple[int, int] | None] = Bridge(_PROGRESS_BOUND)
    ask = partial(residency.acquire, name, progress=lambda *step: steps.put(step), **wish)
    asked = asyncio.get_running_loop().run_in_executor(files, ask)
    try:
        future = await asyncio.shield(asked)
        future.add_done_callback(lambda _: steps.finish(None))
        shown = -1
        while (step := await steps.get()) is not None:
            done, total = step
            share = _SHARES * done // total if total else 0
            if share > shown:
                shown = share
                await report(done, total)
        return future.result()
    except BaseException:
        asked.add_done_callback(_give_up)
        raise
    finally:
        steps.close()


@contextmanager
def until_handed_on(lease: Lease) -> Iterator[None]:
    """Releases a lease where the work fails that was to hand it on to whoever releases it later."""
    try:
        yield
    except BaseException:
        lease.release()
        raise


def choose_model(asked: str, default: str | None, residency: Residency) -> str:
    """The request's model, else the configured one, else the only resident. Raises InvalidArgument."""
    chosen = asked.strip() or default or residency.only_resident()
    if chosen is None:
        raise InvalidArgument(
            "no model named", None, "give --model NAME, or `mtplx config set model NAME`", field="model"
        )
    return chosen


def _give_up(asked: asyncio.Future[Future[Lease]]) -> None:
    if asked.cancelled() or asked.exception() is not None:
        return
    future = asked.result()
    if not future.cancel():
        future.add_done_callback(_release)


def _release(future: Future[Lease]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().release()
