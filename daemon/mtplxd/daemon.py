"""The daemon put together: what is made, in which order it starts and stops. It holds no rule of any room."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from mtplxd import __version__
from mtplxd.config import Settings
from mtplxd.engine.engine import Engine
from mtplxd.engine.request import STORE_OFF
from mtplxd.errors import MtplxError, Unavailable
from mtplxd.forge.foreman import Foreman
from mtplxd.logs import handle_loop_error
from mtplxd.packs.memory import cache_bytes
from mtplxd.packs.remembered import keep_in
from mtplxd.paths import Home
from mtplxd.platform.blas import request_blas
from mtplxd.platform.device import DeviceLimits
from mtplxd.platform.heap import Leftovers, give_back_large_blocks
from mtplxd.platform.open_files import allow_open_files
from mtplxd.platform.priority import step_back
from mtplxd.platform.privacy import keep_private
from mtplxd.platform.wakefulness import Wakefulness, find_keeper
from mtplxd.residency.catalog import PackCatalog
from mtplxd.residency.depth_memory import DepthMemory
from mtplxd.residency.entry import Lease
from mtplxd.residency.guard import Guard
from mtplxd.residency.holdings import Holdings
from mtplxd.residency.loader import ModelLoader, device_limit
from mtplxd.residency.manager import Residency
from mtplxd.residency.memory import SystemMemory
from mtplxd.residency.plan import budget_bytes
from mtplxd.rpc.calls import EarlyCalls
from mtplxd.rpc.conversing import Desk
from mtplxd.rpc.edge import Edge
from mtplxd.rpc.fans import FanDesk
from mtplxd.rpc.forges import Forge
from mtplxd.rpc.generation import Generation
from mtplxd.rpc.judging import Judge
from mtplxd.rpc.models import Models
from mtplxd.rpc.server import Server
from mtplxd.rpc.sessions import Sessions, Texts
from mtplxd.rpc.sockets import SocketClaim
from mtplxd.rpc.status import BlasFacts, Facts, StatusBoard
from mtplxd.rpc.store import Store, StoreRoom
from mtplxd.rpc.system import System
from mtplxd.rpc.tuning import Tuning
from mtplxd.rpc.watchdog import Watchdog, has_work
from mtplxd.store.claims import Claims
from mtplxd.store.disk import DiskStore
from mtplxd.store.limits import Limits
from mtplxd.store.prefixes import PrefixIndex
from mtplxd.store.sessions import Sessions as SessionFile
from mtplxd.store.tiers import Tiers
from mtplxd.thermal.policy import Work, fan_mode
from mtplxd.thermal.warden import Warden
from mtplxd.tune.records import TuningFile

log = logging.getLogger(__name__)

ENGINE_POLL_S, SWEEP_S, LEFTOVERS_S = 0.5, 1.0, 30.0
GUARD_S = 2.0
ENGINE_STOP_S = 10.0
"""A forward or a load step may have to end before the engine thread can."""
LAST_EVENTS_S, GRACE_S, LAST_RECORDS_S, LAST_BLOCKS_S = 2.0, 0.5, 2.0, 10.0
FILE_THREADS, PULL_THREADS = 4, 2
SWITCH_S = 5e-4
"""How long one thread may keep the interpreter from another that is back from reading, waiting or computing: a tenth of
Python's own. Whoever reads many blocks comes back a hundred times a second, and waits so long each time."""


class Daemon:
    """One serving process. Made on the event loop, after the socket is claimed."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self.settings, self._home = settings, home
        give_back_large_blocks()
        sys.setswitchinterval(SWITCH_S)
        allow_open_files()
        request_blas(settings.blas)
        keep_in(home.root)
        self.memory = SystemMemory()
        self.facts = Facts(degraded=list(settings.warnings))
        self._files = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files")
        self.disk = None if settings.store == STORE_OFF else self._open_disk()
        self.prefixes: Tiers[Any] = Tiers(PrefixIndex(settings.prefix_cache, settings.store_block), self.disk)
        self.engine = Engine(
            queue_limit=settings.queue_limit,
            prefill_chunk=settings.prefill_chunk,
            max_rows=settings.max_rows,
            client_limit=settings.client_limit,
            kv_budget=lambda held: self.residency.kv_budget(held),
            prefix_store=self.prefixes,
        )
        self.catalog = PackCatalog(home)
        self.depths = DepthMemory(TuningFile(home.tuning_file), self.engine)
        self.residency = Residency(
            self.engine,
            ModelLoader(self.engine.beat, self.engine.forget, self.depths),
            self.catalog,
            self.memory,
            budget=budget_bytes(self.memory.total, settings.memory_budget),
            keep_alive_s=settings.keep_alive,
            keep_alive_from=settings.source("keep_alive"),
            kv_held=lambda: self.engine.context_bytes,
            settle=self.depths.settle,
            elsewhere=lambda: self._forge.worker_bytes,
        )
        self.depths.listen(self.residency.note_tuned)
        self.device = DeviceLimits()
        holdings = Holdings(self.engine, lambda: self.prefixes.nbytes, self.device.read)
        self.guard = Guard(self.residency, self.memory, holdings)
        self.fans = Warden(settings.fan_socket, fan_mode(settings.fans), settings.fan_lease, self._see_work)
        self.edge = Edge()
        self.awake = Wakefulness(self._has_work, find_keeper())
        self._stopping, self._hurry = asyncio.Event(), asyncio.Event()
        self._pulls = ThreadPoolExecutor(PULL_THREADS, thread_name_prefix="pull")
        self._background: list[asyncio.Task[None]] = []
        self.desk = Desk(SessionFile(home.sessions_file, made=self._close_store_to_others), Claims())
        self.store = StoreRoom(
            settings.store, home.store, _limits(settings), self.prefixes.block, self.disk, self.desk,
            lambda: self.prefixes.counts,
        )  # fmt: skip
        early = EarlyCalls(settings.queue_limit, settings.client_limit)
        fans = FanDesk(home, self.fans, self._files)
        board = StatusBoard(
            home, settings, self.engine, self.residency, self.memory, early, self.facts,
            lambda: self.edge.draining, lambda: self.watchdog.stalled, lambda: self.prefixes.counts,
            self.store.state, lambda: self.guard.view, self.device.read, lambda: self.awake.view,
            fans.state,
        )  # fmt: skip
        generation = Generation(
            self.engine,
            self.residency,
            early,
            self._files,
            settings.model,
            desk=self.desk,
            store=settings.store,
        )
        self._models = Models(
            home, self.residency, self.catalog, self._files, self._pulls, settings.model, store=settings.store
        )
        tuning = Tuning(
            self.engine, self.residency, self._files, self.facts, settings.model, self.depths, self.fans
        )
        self._forge = Forge(home, Foreman(home, Judge(tuning, self.residency)), self._files, self._pulls)
        self.server = Server(
            self.edge,
            {
                "mtplx.v1.Forge": self._forge,
                "mtplx.v1.Generation": generation,
                "mtplx.v1.Models": self._models,
                "mtplx.v1.Sessions": Sessions(
                    self.desk,
                    self.disk,
                    self.prefixes.block,
                    self.catalog.resolve,
                    self._files,
                    self._forget_texts,
                ),
                "mtplx.v1.Store": Store(self.store, self._forget_prefixes, self._files),
                "mtplx.v1.System": System(board, self.engine, early, self.stop, fans),
                "mtplx.v1.Tuning": tuning,
            },
        )
        self.watchdog = Watchdog(self.engine, generation, self.server, settings.stall_s)

    async def start(self, claim: SocketClaim) -> None:
        """Serve. Model libraries are imported by the engine thread once `prepare` is called."""
        self.engine.start()
        self.fans.start()
        await self.server.start(self.settings.socket)
        claim.bound()
        await self.server.set_serving(True)
        self._background = [
            asyncio.create_task(self._watch_engine()),
            asyncio.create_task(self._sweep()),
            asyncio.create_task(self._clear_leftovers()),
            asyncio.create_task(self._guard_memory()),
        ]

    def prepare(self, preload: Sequence[str]) -> None:
        """Import model libraries, measure the BLAS, load what was asked for; all of it in other threads."""
        try:
            warming = self.engine.call(self._warm_up, "starting")
        except Unavailable as error:  # the engine died at once; its watcher ends the daemon
            log.critical("%s", error)
            return
        warming.add_done_callback(self._note_blas)
        self.desk.submit(self.desk.sessions.look)
        if self.settings.store != STORE_OFF:
            self._files.submit(self._close_store_to_others)
        self._files.submit(self._forge.prepare)
        for name in preload:
            self._files.submit(self._preload, name)

    def stop(self) -> None:
        """Begin to stop; a second call cancels what is in flight at once."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def run(self) -> int:
        """Serve until told to stop, or until the engine is dead; the exit code."""
        await self._stopping.wait()
        alive = self.engine.snapshot().alive
        await self._drain(self.settings.drain_s if alive else 0.0)
        log.info("stopped")
        return 0 if alive else 1

    async def _drain(self, patience_s: float) -> None:
        log.info("stopping")
        await self.server.enter_drain()
        self.edge.drain()
        self._models.stop_pulls()
        self._forge.stop()
        hurry = asyncio.create_task(self._hurry.wait())
        quiet = asyncio.create_task(self.edge.wait_quiet(patience_s))
        await asyncio.wait((hurry, quiet), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        quiet.cancel()
        self.residency.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.fans.close)
        stopped = loop.run_in_executor(None, self.engine.stop, ENGINE_STOP_S)
        await self.edge.wait_quiet(LAST_EVENTS_S)
        await self.server.stop(GRACE_S)
        for task in self._background:
            task.cancel()
        if not await stopped:
            log.warning("the engine thread is still busy, the process ends without it")
        else:
            await loop.run_in_executor(None, self.depths.close, LAST_RECORDS_S)
            await loop.run_in_executor(None, self.desk.close)
        await loop.run_in_executor(None, self._close_disk)
        await loop.run_in_executor(None, self.awake.let_go)
        self._files.shutdown(wait=False, cancel_futures=True)
        self._pulls.shutdown(wait=False, cancel_futures=True)

    async def _watch_engine(self) -> None:
        while self.engine.snapshot().alive:
            await self.watchdog.look()
            if self.awake.due():
                await asyncio.to_thread(self.awake.look)
            await asyncio.sleep(ENGINE_POLL_S)
        log.critical("the engine has died, the daemon ends")
        self.stop()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.residency.sweep()
            self.depths.sweep()

    async def _guard_memory(self) -> None:
        while True:
            await asyncio.sleep(GUARD_S)
            self.guard.look()
            self.awake.check()

    def _has_work(self) -> bool:
        """Whether anybody waits for anything, a build that its client left included."""
        return self.edge.working or self._forge.working or has_work(self.engine.snapshot())

    async def _clear_leftovers(self) -> None:
        leftovers = Leftovers(lambda: self.engine.serving)
        while True:
            await asyncio.sleep(LEFTOVERS_S)
            await asyncio.to_thread(leftovers.look)

    def _warm_up(self) -> BlasFacts:
        """Runs on the engine thread."""
        from mtplxd.platform.mlx import blas, measure_gflops, mx

        budget = self.residency.budget
        self.device.bound(mx, cache_bytes(budget), min(budget, device_limit(mx) or budget))
        if blas.warning:
            self.facts.degraded.append(blas.warning)
        return BlasFacts(blas.name, blas.path, blas.threads, measure_gflops())

    def _note_blas(self, future: Future[BlasFacts]) -> None:
        error = future.exception()
        if error is None:
            self.facts.blas = future.result()
        if error is None or self._stopping.is_set():
            return
        log.error("cannot start the model libraries", exc_info=error)
        self.facts.degraded.append(str(error) if isinstance(error, MtplxError) else "model libraries")

    def _see_work(self) -> Work:
        """What fans may be held for; asked by their thread."""
        found = self.engine.snapshot()
        return Work(bool(found.running or found.waiting or found.busy_with), found.heartbeat_age_s)

    def _open_disk(self) -> DiskStore:
        return DiskStore(
            self._home.store,
            _limits(self.settings),
            busy=lambda: self.engine.serving,
            lower_priority=step_back,
            made=self._note_store_made,
        )

    def _close_disk(self) -> None:
        """What was computed is durable before the process ends, as far as there is time."""
        self.prefixes.close()
        if self.disk is not None and not self.disk.close(LAST_BLOCKS_S):
            log.warning("the disk was too slow for all that was to be kept")

    def _forget_prefixes(self) -> Future[int]:
        """Drops what is kept of prompts in memory, unless it is in use."""
        return self.engine.drop_kept(lambda kept: kept.clear())

    def _forget_texts(self, texts: Texts) -> Future[int]:
        """Drops what is kept in memory of these alone."""
        return self.engine.drop_kept(lambda kept: kept.forget_texts(texts))

    def _note_store_made(self) -> None:
        """From any thread. Asking the system takes seconds: nobody waits for it."""
        with contextlib.suppress(RuntimeError):  # the daemon is at its end
            self._files.submit(self._close_store_to_others)

    def _close_store_to_others(self) -> None:
        """Others, backups and indexes stay out of what was said."""
        for trouble in keep_private(self._home.store).troubles:
            if (told := f"store: {trouble} ({self._home.store})") not in self.facts.degraded:
                self.facts.degraded.append(told)

    def _preload(self, name: str) -> None:
        def done(future: Future[Lease]) -> None:
            if future.cancelled():
                return
            if error := future.exception():
                self._note_preload(name, error)
            else:
                lease = future.result()
                self.residency.configure(lease, pinned=True)
                lease.release()

        try:
            self.residency.acquire(name).add_done_callback(done)
        except MtplxError as error:
            self._note_preload(name, error)

    def _note_preload(self, name: str, error: BaseException) -> None:
        log.error("cannot preload %s: %s", name, error)
        self.facts.degraded.append(f"preload of {name}: {error}")


def _limits(settings: Settings) -> Limits:
    return Limits(
        settings.store_size, settings.store_free_floor, settings.store_write_budget, settings.store_queue
    )


async def serve(
    home: Home,
    settings: Settings,
    claim: SocketClaim,
    on_ready: Callable[[], object] = lambda: None,
    doubt: str = "",
) -> int:
    """Run a daemon on a claimed socket until it is stopped; the exit code.

    `doubt` is why nothing should be preloaded, empty where all is well.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(handle_loop_error)
    daemon = Daemon(home, settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.stop)
    await daemon.start(claim)
    log.info("ready, version %s, pid %d, socket %s", __version__, os.getpid(), settings.socket)
    with contextlib.suppress(BrokenPipeError):  # whoever started us may not listen
        print(f"ready socket={settings.socket} pid={os.getpid()}", flush=True)
    on_ready()
    if doubt and settings.preload:
        log.error("%s", doubt)
        daemon.facts.degraded.append(doubt)
    daemon.prepare(() if doubt else settings.preload)
    return await daemon.run()


def leave(code: int) -> None:
    """End the process without waiting for threads that do not end; logs are flushed first."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed by whoever started us
            stream.flush()
    os._exit(code)
