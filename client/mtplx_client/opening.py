"""Waits for a connection: greets the daemon on a channel and looks after it until it answers.

Owns no channel and no limit of the wait (that is `connection`). A greeting and not gRPC's own word of a channel's
state, which keeps a thread that takes a fifth of a second to end.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from mtplx_client import calls
from mtplx_client.connection import Peer, Wait
from mtplx_client.rpc_errors import is_lost_connection


def is_connected(channel: grpc.Channel, peer: Peer, wait: Wait) -> bool:
    """Whether the daemon answers on this channel; blocks until it does. False for one that was closed meanwhile.

    Raises NoDaemon and NotAnswering when the wait is over.
    """
    greeting = None
    try:
        while True:
            seconds = peer.look(wait)
            if greeting is None:
                call, rpc = _greeting(channel)
                greeting = rpc.future(call.request, metadata=peer.metadata, wait_for_ready=True)
            try:
                failure = greeting.exception(timeout=seconds)
            except grpc.FutureTimeoutError:
                continue
            if failure is None or not is_lost_connection(failure):
                return True
            greeting = None
    except (grpc.FutureCancelledError, ValueError):  # what grpc says of a closed channel
        return False
    finally:
        if greeting is not None:
            greeting.cancel()


async def is_connected_aio(channel: grpc.aio.Channel, peer: Peer, wait: Wait) -> bool:
    """As `is_connected`, without blocking."""
    greeting = None
    try:
        while True:
            seconds = peer.look(wait)
            if greeting is None:
                call, rpc = _greeting(channel)
                greeting = rpc(call.request, metadata=peer.metadata, wait_for_ready=True)
            await asyncio.wait({asyncio.ensure_future(greeting.code())}, timeout=seconds)
            if not greeting.done():
                continue
            if greeting.cancelled():
                return False
            try:
                await greeting
            except grpc.RpcError as failure:
                if is_lost_connection(failure):
                    greeting = None
                    continue
            return True
    except grpc.aio.UsageError:  # what grpc says of a closed channel
        return False
    finally:
        if greeting is not None:
            greeting.cancel()


def _greeting(channel: Any) -> tuple[calls.Call[Any], Any]:
    """The call, and what sends it on this channel."""
    call = calls.hello()
    rpc = channel.unary_unary(
        call.path, call.request.__class__.SerializeToString, call.reply_class.FromString
    )
    return call, rpc
