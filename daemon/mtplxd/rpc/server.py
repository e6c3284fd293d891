"""The one gRPC server: its services, limits, health and reflection. When it starts is the daemon's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from mtplx_proto.v1 import (
    forge_pb2_grpc,
    generation_pb2_grpc,
    models_pb2_grpc,
    sessions_pb2_grpc,
    store_pb2_grpc,
    system_pb2_grpc,
    tuning_pb2_grpc,
)

from mtplxd.rpc.edge import Edge

MESSAGE_LIMIT = 64 << 20
"""Bytes of one message, either way."""
_NEVER_MS = 2**31 - 1

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.keepalive_time_ms", _NEVER_MS),
    ("grpc.so_reuseport", 0),
)

Register = Callable[[Any, grpc.aio.Server], None]
"""A generated `add_…Servicer_to_server`."""
SERVICES: dict[str, Register] = {
    "mtplx.v1.Forge": forge_pb2_grpc.add_ForgeServicer_to_server,
    "mtplx.v1.Generation": generation_pb2_grpc.add_GenerationServicer_to_server,
    "mtplx.v1.Models": models_pb2_grpc.add_ModelsServicer_to_server,
    "mtplx.v1.Sessions": sessions_pb2_grpc.add_SessionsServicer_to_server,
    "mtplx.v1.Store": store_pb2_grpc.add_StoreServicer_to_server,
    "mtplx.v1.System": system_pb2_grpc.add_SystemServicer_to_server,
    "mtplx.v1.Tuning": tuning_pb2_grpc.add_TuningServicer_to_server,
}


class Server:
    """A gRPC server on a Unix socket. Made and used on the event loop."""

    def __init__(self, edge: Edge, servicers: dict[str, Any]) -> None:
        self._grpc = grpc.aio.server(interceptors=[edge], options=OPTIONS)
        self._health = health.aio.HealthServicer()
        for name, servicer in servicers.items():
            SERVICES[name](servicer, self._grpc)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        self.names = ("", *servicers)
        _add_reflection(self._grpc, [*servicers, health.SERVICE_NAME])

    async def start(self, socket: Path) -> None:
        """Bind and serve. Whoever calls holds the socket's lock: binding removes what is there."""
        await self.set_serving(False)
        self._grpc.add_insecure_port(f"unix:{quote(str(socket))}")
        socket.chmod(0o600)
        await self._grpc.start()

    async def set_serving(self, serving: bool) -> None:
        """Health of the whole and of each service."""
        kind = health_pb2.HealthCheckResponse
        for name in self.names:
            await self._health.set(name, kind.SERVING if serving else kind.NOT_SERVING)

    async def enter_drain(self) -> None:
        """NOT_SERVING for good."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Refuse connections, give open calls `grace_s` seconds, end them."""
        await self._grpc.stop(grace_s)


def _add_reflection(server: grpc.aio.Server, names: Sequence[str]) -> None:
    """v1alpha as grpc ships it, and v1, which has the same messages under another name."""
    reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
    servicer = reflection.aio.ReflectionServicer((*names, reflection.SERVICE_NAME))
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    generic = grpc.method_handlers_generic_handler(
        "grpc.reflection.v1.ServerReflection", {"ServerReflectionInfo": handler}
    )
    server.add_generic_rpc_handlers((generic,))
