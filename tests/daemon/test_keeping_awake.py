"""A daemon counts as at work from a request's begin to its end, also where that is an error or a cancel."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from mtplxd.engine.snapshot import Counters, EngineSnapshot
from mtplxd.platform.wakefulness import Wakefulness
from mtplxd.rpc.edge import Edge
from mtplxd.rpc.watchdog import has_work

WORK = "/mtplx.v1.Generation/Generate"


class Context:
    """A call that nobody made."""

    async def send_initial_metadata(self, _: Any) -> None:
        return None

    def invocation_metadata(self) -> tuple[()]:
        return ()

    async def abort(self, *_: Any) -> None:
        raise grpc.aio.AbortError


class Counted:
    """A keeper that counts."""

    name, trouble = "counted", ""

    def __init__(self) -> None:
        self.held = self.begun = 0

    def hold(self) -> bool:
        self.held, self.begun = self.held + 1, self.begun + 1
        return True

    def holds(self) -> bool:
        return bool(self.held)

    def let_go(self) -> None:
        self.held -= 1


def looked(awake: Wakefulness) -> None:
    """Two looks, as the daemon takes them."""
    for _ in range(2):
        if awake.due():
            awake.look()


@pytest.mark.parametrize("end", ["well", "error", "cancel"])
def test_it_is_held_during_a_call_and_let_go_after_it_however_it_ends(end: str) -> None:
    async def run() -> tuple[int, int, int]:
        edge, keeper, go = Edge(), Counted(), asyncio.Event()
        awake = Wakefulness(lambda: edge.working, keeper)

        async def behave(request: Any, context: Any) -> str:  # noqa: ARG001
            await go.wait()
            if end == "error":
                raise ValueError("a bug")
            return "done"

        handler = edge._wrap(grpc.unary_unary_rpc_method_handler(behave), WORK)
        call = asyncio.ensure_future(handler.unary_unary(None, Context()))
        while not edge.working:
            await asyncio.sleep(0)
        looked(awake)
        during = keeper.held
        if end == "cancel":
            call.cancel()
        go.set()
        await asyncio.gather(call, return_exceptions=True)
        looked(awake)
        return during, keeper.held, keeper.begun

    assert asyncio.run(run()) == (1, 0, 1)


def snapshot(**words: Any) -> EngineSnapshot:
    return EngineSnapshot(
        words.pop("running", 0), words.pop("waiting", 0), (), Counters(0.0), True, words.pop("busy_with", "")
    )


@pytest.mark.parametrize("words", [{"running": 1}, {"waiting": 1}, {"busy_with": "measuring"}])
def test_an_engine_that_measures_or_serves_is_at_work(words: dict[str, Any]) -> None:
    assert has_work(snapshot(**words))
    assert not has_work(snapshot())
