"""The System service: who answers, how it is, and its end. It measures and decides nothing."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from typing import Any

from mtplx_proto.v1 import system_pb2, system_pb2_grpc

from mtplxd import PROTOCOL, __version__
from mtplxd.engine.engine import Engine
from mtplxd.errors import InvalidArgument
from mtplxd.rpc import handshake
from mtplxd.rpc.answers import cancel_call
from mtplxd.rpc.calls import EarlyCalls
from mtplxd.rpc.fans import FanDesk
from mtplxd.rpc.status import StatusBoard

DEFAULT_INTERVAL_S, SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S = 1.0, 0.1, 3600.0


class System(system_pb2_grpc.SystemServicer):
    """`stop` begins the drain."""

    def __init__(
        self, board: StatusBoard, engine: Engine, early: EarlyCalls, stop: Callable[[], None], fans: FanDesk
    ) -> None:
        self._board, self._engine, self._early, self._stop = board, engine, early, stop
        self._fans = fans

    async def Hello(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        if request.protocol:
            handshake.check_protocol(request.protocol, request.version or "unknown")
        return system_pb2.HelloReply(version=__version__, protocol=PROTOCOL, pid=os.getpid())

    async def Status(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return self._board.build()

    async def Watch(self, request: Any, context: Any) -> None:
        interval = _check_interval(request.interval_s)
        while True:
            await context.write(self._board.shared())
            await asyncio.sleep(interval)

    async def Shutdown(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        asyncio.get_running_loop().call_soon(self._stop)
        return system_pb2.ShutdownReply(pid=os.getpid())

    async def Cancel(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        if not request.id:
            raise InvalidArgument("no request named", None, "see `mtplx status` for ids", field="id")
        # One that was handed on just now may still be in both places.
        found = [
            self._early.cancel(request.id, "operator"),
            cancel_call(self._engine, request.id, "operator"),
        ]
        return system_pb2.CancelReply(found=any(found))

    async def Fans(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return await self._fans.look()

    async def SetFans(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return await self._fans.set_mode(request.mode)

    async def HoldFans(self, request: Any, context: Any) -> None:
        with self._fans.hold(request.reason):
            await context.write(await self._fans.look())
            await asyncio.Event().wait()  # until the client goes


def _check_interval(seconds: float) -> float:
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidArgument("interval is out of range", seconds, "give 0.1 to 3600", field="interval_s")
    if seconds == 0:
        return DEFAULT_INTERVAL_S
    return min(max(seconds, SHORTEST_INTERVAL_S), LONGEST_INTERVAL_S)
