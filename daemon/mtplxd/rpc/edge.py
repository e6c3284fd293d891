"""What every call passes through: request id, handshake, admission, typed errors, the end of idle streams.

It wraps the handlers of all services alike and knows their names only to tell idle from work. When to drain
is the daemon's.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from mtplxd.errors import Unavailable
from mtplxd.rpc import handshake
from mtplxd.rpc.calls import new_request_id, request_id
from mtplxd.rpc.errors import abort, is_status

log = logging.getLogger(__name__)

ALWAYS = frozenset(
    f"/mtplx.v1.{call}"
    for call in (
        "System/Hello", "System/Status", "System/Shutdown", "System/Cancel", "Models/List", "Models/Show",
        "Sessions/List", "Sessions/Show", "Store/Stats", "Forge/Runs",
    )
)  # fmt: skip
"""Our calls that are answered while draining."""
IDLE = frozenset(
    {
        "/mtplx.v1.System/Watch",
        "/mtplx.v1.System/HoldFans",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
)
"""Streams that wait for nothing in particular: ended at once by a drain."""

Behaviour = Callable[[Any, Any], Any]


class Edge(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """The interceptor of the one server. Used on the event loop only."""

    def __init__(self) -> None:
        self._wrapped: dict[str, Any] = {}
        self._draining = asyncio.Event()
        self._work: set[asyncio.Task[Any]] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def draining(self) -> bool:
        return self._draining.is_set()

    @property
    def working(self) -> bool:
        """Whether any call is in flight that is work."""
        return bool(self._work)

    def drain(self) -> None:
        """Admit no work from now on and end idle streams."""
        self._draining.set()

    async def wait_quiet(self, timeout_s: float) -> bool:
        """Wait until no work is in flight; False when some still is."""
        try:
            await asyncio.wait_for(self._quiet.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        """The handler of a call, wrapped once a method."""
        handler = await continuation(details)
        if handler is None:
            return None
        method = details.method
        if method not in self._wrapped:
            self._wrapped[method] = self._wrap(handler, method)
        return self._wrapped[method]

    def _wrap(self, handler: Any, method: str) -> Any:
        streams = handler.response_streaming
        factories = {
            (False, False): (grpc.unary_unary_rpc_method_handler, handler.unary_unary),
            (False, True): (grpc.unary_stream_rpc_method_handler, handler.unary_stream),
            (True, False): (grpc.stream_unary_rpc_method_handler, handler.stream_unary),
            (True, True): (grpc.stream_stream_rpc_method_handler, handler.stream_stream),
        }
        make, behaviour = factories[handler.request_streaming, streams]
        run = functools.partial(_pump, behaviour) if streams else behaviour
        if method in IDLE:
            run = functools.partial(self._until_drain, run)
        elif method.startswith("/mtplx.v1.") and method not in ALWAYS:
            run = functools.partial(self._as_work, run)
        return make(
            self._guard(run, method),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _guard(self, run: Behaviour, method: str) -> Callable[[Any, Any], Awaitable[Any]]:
        name = method.removeprefix("/mtplx.v1.")

        async def call(request: Any, context: Any) -> Any:
            request_id.set(new_request_id())
            begin = time.perf_counter()
            try:
                await context.send_initial_metadata(handshake.own_metadata(request_id.get()))
                handshake.check_client(context.invocation_metadata() or ())
                return await run(request, context)
            except asyncio.CancelledError:
                log.debug("%s: the client left", name)
                raise
            except Exception as error:  # the edge of the process: every error becomes a status here
                if is_status(error):
                    raise
                await abort(context, error)
            finally:
                log.debug("%s took %.1f ms", name, 1e3 * (time.perf_counter() - begin))

        return call

    async def _as_work(self, run: Behaviour, request: Any, context: Any) -> Any:
        if self.draining:
            raise stopping()
        task = asyncio.current_task()
        assert task is not None
        self._work.add(task)
        self._quiet.clear()
        try:
            return await run(request, context)
        finally:
            self._work.discard(task)
            if not self._work:
                self._quiet.set()

    async def _until_drain(self, run: Behaviour, request: Any, context: Any) -> Any:
        if self.draining:
            raise stopping()
        stream = asyncio.ensure_future(run(request, context))
        stream.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # heard by who has left, too
        drain = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait((stream, drain), return_when=asyncio.FIRST_COMPLETED)
            if not stream.done():
                raise stopping()
            return await stream
        finally:
            stream.cancel()
            drain.cancel()


def stopping() -> Unavailable:
    """The error of whoever comes, or waits, while the daemon stops."""
    return Unavailable("the daemon is stopping", None, "start it again")


async def _pump(behaviour: Behaviour, request: Any, context: Any) -> None:
    """Run a streaming handler, whether it yields its answers or writes them."""
    answers = behaviour(request, context)
    if not inspect.isasyncgen(answers):
        await answers
        return
    try:
        async for answer in answers:
            await context.write(answer)
    finally:
        await answers.aclose()
