"""The Store service: what is kept on disk of prompts, checked, trimmed and wiped. What goes and why is the store's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtplx_proto.v1 import common_pb2, store_pb2, store_pb2_grpc, system_pb2

from mtplxd.engine.request import STORE_OFF
from mtplxd.errors import FailedPrecondition
from mtplxd.rpc.bridge import Bridge
from mtplxd.rpc.conversing import Desk
from mtplxd.store.disk import DiskCounts, DiskStore
from mtplxd.store.limits import Limits
from mtplxd.store.prefixes import PrefixCounts
from mtplxd.store.sessions import SessionCounts

_PROGRESS_BOUND = 16
READY = "ready"


@dataclass(frozen=True)
class StoreRoom:
    """What the daemon has of a store: its mode (on, write-only, off), the blocks on disk, None where it keeps none,
    the sessions beside them, and what came of looking prompts up."""

    mode: str
    folder: Path
    limits: Limits
    block: int
    disk: DiskStore | None
    desk: Desk
    prompts: Callable[[], PrefixCounts] = PrefixCounts

    @property
    def counts(self) -> DiskCounts:
        """Of the blocks."""
        return self.disk.counts() if self.disk is not None else DiskCounts(state=STORE_OFF)

    @property
    def sessions(self) -> SessionCounts:
        """Of the sessions."""
        return self.desk.sessions.counts

    def state(self) -> system_pb2.StoreState:
        """What status shows of it."""
        counts, sessions = self.counts, self.sessions
        state, reason = self._judge(counts, sessions)
        return system_pb2.StoreState(
            bytes=counts.nbytes + sessions.nbytes,
            blocks=counts.blocks,
            sessions=sessions.sessions,
            state=state,
            reason=reason,
        )

    def stats(self) -> store_pb2.StoreStats:
        """Everything that is counted."""
        counts, sessions, prompts = self.counts, self.sessions, self.prompts()
        state, reason = self._judge(counts, sessions)
        return store_pb2.StoreStats(
            state=state,
            reason=reason,
            folder=str(self.folder),
            blocks=counts.blocks,
            bytes=counts.nbytes,
            raw_bytes=counts.raw_bytes,
            hits=prompts.hits,
            misses=prompts.misses,
            miss_reasons=_reasons(prompts.miss_reasons),
            drop_reasons=_reasons(counts.drop_reasons),
            quarantined=counts.quarantined,
            evicted=counts.evicted,
            reclaimed=counts.reclaimed,
            bytes_written=counts.bytes_written,
            waiting=counts.waiting,
            size_limit=self.limits.size,
            free_floor=self.limits.free_floor,
            hourly_writes=self.limits.hourly_writes,
            queue_limit=self.limits.queue,
            block_tokens=self.block,
            sessions=sessions.sessions,
            session_bytes=sessions.nbytes,
            tokens_found=prompts.positions,
            tokens_from_disk=prompts.from_disk,
            memory_bytes=prompts.nbytes,
            block_reads=counts.hits,
            unread_reasons=_reasons(counts.miss_reasons),
        )

    def _judge(self, counts: DiskCounts, sessions: SessionCounts) -> tuple[str, str]:
        if self.disk is not None and counts.state != READY:
            return counts.state, counts.reason
        if sessions.reason:
            return "degraded", sessions.reason
        return self.mode, counts.reason


class Store(store_pb2_grpc.StoreServicer):
    """`forget_memory` drops what is kept in memory, on whichever thread owns that; `files` runs what takes long."""

    def __init__(self, room: StoreRoom, forget_memory: Callable[[], Future[Any]], files: Executor) -> None:
        self._room, self._forget_memory, self._files = room, forget_memory, files

    async def Stats(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return self._room.stats()

    async def Verify(self, request: Any, context: Any) -> None:  # noqa: ARG002
        disk = self._disk()
        gone = threading.Event()
        steps: Bridge[tuple[int, int] | None] = Bridge(_PROGRESS_BOUND)

        def say(done: int, total: int) -> bool:
            steps.put((done, total))
            return not gone.is_set()

        verifying = asyncio.get_running_loop().run_in_executor(self._files, disk.verify, say)
        verifying.add_done_callback(lambda _: steps.finish(None))
        try:
            while (step := await steps.get()) is not None:
                done, total = step
                progress = common_pb2.Progress(stage="verify", done=done, total=total, unit="blocks")
                await context.write(store_pb2.StoreVerifyEvent(progress=progress))
            found = await verifying
            verified = store_pb2.StoreVerified(blocks=found.blocks, bytes=found.nbytes, bad=found.bad)
            await context.write(store_pb2.StoreVerifyEvent(verified=verified))
        finally:
            gone.set()
            steps.close()

    async def Prune(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return store_pb2.StoreFreed(bytes_freed=await self._on_disk(self._disk().prune))

    async def Clear(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        """Sessions that answer somebody go too: their answers are given, and not kept."""
        count = freed = 0
        await self._wipe_memory()  # what waits there to be written is not, then
        if request.sessions:
            count, freed = await self._room.desk.run(self._room.desk.sessions.clear)
        if self._room.disk is not None:
            freed += await self._on_disk(self._room.disk.clear)
        await self._wipe_memory()  # nor does anything stay that came back meanwhile
        return store_pb2.StoreFreed(bytes_freed=freed, sessions=count)

    async def _wipe_memory(self) -> None:
        await asyncio.wrap_future(self._forget_memory())

    def _disk(self) -> DiskStore:
        if self._room.disk is None:
            fix = "`mtplx config set store on` and start the daemon again"
            raise FailedPrecondition("the daemon's store is off", None, fix)
        return self._room.disk

    async def _on_disk(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._files, work, *args)


def _reasons(counts: Mapping[str, int]) -> list[store_pb2.Reason]:
    return [store_pb2.Reason(name=name, count=count) for name, count in sorted(counts.items())]
