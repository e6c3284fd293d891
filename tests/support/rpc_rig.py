"""The real services behind the real server on a real socket, in one process, with a scripted engine and loader."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from mtplx_proto.v1 import (
    forge_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    models_pb2_grpc,
    sessions_pb2_grpc,
    store_pb2_grpc,
    system_pb2_grpc,
)
from mtplxd.config import resolve_settings
from mtplxd.forge.foreman import Foreman
from mtplxd.paths import Home
from mtplxd.rpc.answers import UNREAD_LIMIT
from mtplxd.rpc.calls import EarlyCalls
from mtplxd.rpc.conversing import Desk
from mtplxd.rpc.edge import Edge
from mtplxd.rpc.fans import FanDesk
from mtplxd.rpc.forges import Forge
from mtplxd.rpc.generation import Generation
from mtplxd.rpc.models import Models
from mtplxd.rpc.server import Server
from mtplxd.rpc.sessions import Sessions as SessionsService
from mtplxd.rpc.sessions import Texts
from mtplxd.rpc.status import Facts, StatusBoard
from mtplxd.rpc.store import Store, StoreRoom
from mtplxd.rpc.system import System
from mtplxd.rpc.watchdog import Watchdog
from mtplxd.store.claims import Claims
from mtplxd.store.disk import DiskStore
from mtplxd.store.limits import Limits
from mtplxd.store.sessions import Sessions
from mtplxd.thermal.policy import Work
from mtplxd.thermal.warden import Warden
from support.daemon_process import short_folder
from support.fake_engine import ScriptedEngine
from support.fake_forge import FAKE, FakeEngine
from support.fake_residency import Rig, make_rig

LIMIT_S = 30.0
STALL_S = 120.0
BLOCK = 8
"""Tokens of a block, where any are kept."""


class ByteTokenizer:
    """One id a byte; a chat is its contents joined."""

    vocab_size = 256
    longest_token = 1

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token: int) -> bytes:
        return bytes([token])

    def render_chat(
        self, messages: list[dict[str, str]], spoken: Mapping[int, Sequence[int]] | None = None
    ) -> list[int]:
        said = spoken or {}
        pieces = [said.get(at, self.encode(message["content"])) for at, message in enumerate(messages)]
        return [id for piece in pieces for id in (*piece, ord("|"))][:-1]


@dataclass
class Wire:
    """Stubs on a connected channel, and what is behind them."""

    channel: grpc.aio.Channel
    engine: ScriptedEngine
    models: Rig
    edge: Edge
    server: Server
    early: EarlyCalls
    home: Home
    stops: list[None]
    watchdog: Watchdog
    desk: Desk
    service: Generation
    disk: DiskStore | None
    forgotten: threading.Event
    forgotten_texts: list[tuple[list[int], int]]
    forge: Forge

    def __post_init__(self) -> None:
        self.generation = generation_pb2_grpc.GenerationStub(self.channel)
        self.packs = models_pb2_grpc.ModelsStub(self.channel)
        self.system = system_pb2_grpc.SystemStub(self.channel)
        self.sessions = sessions_pb2_grpc.SessionsStub(self.channel)
        self.store = store_pb2_grpc.StoreStub(self.channel)
        self.builds = forge_pb2_grpc.ForgeStub(self.channel)

    async def hashed(self) -> None:
        """Waits for the fingerprints of packs that were asked for."""
        await asyncio.get_running_loop().run_in_executor(self.service._hashing, lambda: None)

    def ask(self, prompt: str = "hi", model: str = "a", **fields: Any) -> generation_pb2.GenerateRequest:
        return generation_pb2.GenerateRequest(prompt=prompt, model=model, **fields)


@asynccontextmanager
async def wired(
    engine: ScriptedEngine | None = None,
    model: str | None = None,
    early: EarlyCalls | None = None,
    clock: Callable[[], float] = time.monotonic,
    unread_limit: int = UNREAD_LIMIT,
    *,
    limits: Limits | None = None,
    store: str = "on",
) -> AsyncIterator[Wire]:
    """A served rig whose catalog has a pack `a`; with limits it keeps blocks of 8 tokens on disk."""
    with short_folder() as folder:
        engine = engine or ScriptedEngine()
        home = Home(folder)
        home.create()
        models = make_rig(folder / "packs")
        models.loader.tokenizer = ByteTokenizer()
        models.catalog.add("a")
        settings = resolve_settings(home, env={})
        edge, early, stops, forgotten = Edge(), early or EarlyCalls(), [], threading.Event()
        forgotten_texts: list[tuple[list[int], int]] = []

        def forget_texts(texts: Texts) -> Future[int]:
            own = [(list(chain), beyond) for chain, beyond in texts]

            def forget() -> int:
                forgotten_texts.extend(own)
                return len(own)

            return engine.call(forget, "clearing")

        files = ThreadPoolExecutor(4)
        residency: Any = models.residency
        fans = FanDesk(home, Warden(home.run / "no-fans.sock", "auto", 5.0, Work), files)  # no helper is here
        board = StatusBoard(
            home, settings, engine, residency, models.memory, early, Facts(), lambda: edge.draining,
            lambda: watchdog.stalled, store=lambda: room.state(),
        )  # fmt: skip
        desk = Desk(Sessions(home.sessions_file), Claims())
        disk = DiskStore(home.store, limits) if limits else None
        if disk is not None:  # it opens beside its maker: what a scenario reads first is an open store
            assert await asyncio.to_thread(disk.flush, LIMIT_S)
        room = StoreRoom(store, home.store, limits or Limits(), BLOCK, disk, desk)
        generation = Generation(engine, residency, early, files, model, unread_limit, desk=desk, store=store)
        foreman = Foreman(home, FakeEngine(), worker="support.fake_forge_worker", parts=FAKE)
        forge = Forge(home, foreman, files, files)
        servicers = {
            "mtplx.v1.Forge": forge,
            "mtplx.v1.Generation": generation,
            "mtplx.v1.Models": Models(home, residency, models.catalog, files, files, model, store=store),
            "mtplx.v1.Sessions": SessionsService(
                desk, disk, BLOCK, models.catalog.resolve, files, forget_texts
            ),
            "mtplx.v1.Store": Store(room, lambda: engine.call(forgotten.set, "clearing"), files),
            "mtplx.v1.System": System(board, engine, early, lambda: stops.append(None), fans),
        }
        server = Server(edge, servicers)
        watchdog = Watchdog(engine, generation, server, STALL_S, clock)
        await server.start(settings.socket)
        await server.set_serving(True)
        try:
            async with grpc.aio.insecure_channel(f"unix:{settings.socket}") as channel:
                yield Wire(
                    channel, engine, models, edge, server, early, home, stops, watchdog, desk, generation,
                    disk, forgotten, forgotten_texts, forge,
                )  # fmt: skip
        finally:
            models.loader.gate.set()
            forge.stop()
            models.residency.close()
            await server.stop(0)
            desk.close()
            if disk is not None:
                disk.close(LIMIT_S)


async def eventually(condition: Any) -> None:
    """Wait for something another thread will bring about."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.005)
