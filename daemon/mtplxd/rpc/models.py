"""The Models service: packs on disk and models in memory. Fetching, judging and loading are other rooms'."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from mtplx_proto.v1 import models_pb2, models_pb2_grpc

from mtplxd.engine.request import STORE_ON
from mtplxd.errors import DataLoss, FailedPrecondition, InvalidArgument, MtplxError
from mtplxd.packs.detector import detect_head
from mtplxd.packs.fingerprint import body_fingerprint, own_head_fingerprint
from mtplxd.packs.gate import Consent
from mtplxd.packs.pack import Pack
from mtplxd.packs.pull import pull
from mtplxd.packs.resolver import check_removable, remove_pack
from mtplxd.paths import Home
from mtplxd.residency.catalog import PackCatalog
from mtplxd.residency.entry import Lease, ResidentView
from mtplxd.residency.manager import Residency
from mtplxd.residency.wishes import check_not_busy
from mtplxd.rpc import messages
from mtplxd.rpc.bridge import Bridge
from mtplxd.rpc.leasing import acquire, choose_model
from mtplxd.rpc.settling import check_lease_depth
from mtplxd.rpc.settling_store import settle_store
from mtplxd.rpc.validate import AUTO_DEPTH, check_keep_alive, check_plain, read_depth
from mtplxd.rpc.validate_session import read_store

T = TypeVar("T")
Step = tuple[str, int, int]

_PROGRESS_BOUND = 16


class Models(models_pb2_grpc.ModelsServicer):
    """`files` runs what touches the disk; `pulls` runs what takes minutes, so neither waits for the other."""

    def __init__(
        self,
        home: Home,
        residency: Residency,
        catalog: PackCatalog,
        files: Executor,
        pulls: Executor,
        default_model: str | None,
        *,
        store: str = STORE_ON,
    ) -> None:
        """`store` is what the daemon has to do with the disk."""
        self._home, self._residency, self._catalog = home, residency, catalog
        self._files, self._pulls = files, pulls
        self._default_model, self._store = default_model, store
        self._stop_pulls = threading.Event()

    def stop_pulls(self) -> None:
        """Cancels every pull; a later one goes on from what has arrived."""
        self._stop_pulls.set()

    async def Pull(self, request: Any, context: Any) -> None:
        name = _named(request.name)
        gone = threading.Event()
        steps: Bridge[Step | None] = Bridge(_PROGRESS_BOUND)
        work = partial(
            pull,
            name,
            self._home,
            lambda *step: steps.put(step),
            lambda: gone.is_set() or self._stop_pulls.is_set(),
        )
        pulling = asyncio.get_running_loop().run_in_executor(self._pulls, work)
        pulling.add_done_callback(_hear)
        pulling.add_done_callback(lambda _: steps.finish(None))
        try:
            while (step := await steps.get()) is not None:
                await context.write(models_pb2.PullEvent(progress=messages.progress(*step)))
            pack = await pulling
            await context.write(models_pb2.PullEvent(pack=await self._on_disk(self._describe, pack)))
        finally:
            gone.set()
            steps.close()

    async def List(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return await self._on_disk(self._list)

    async def Show(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return await self._on_disk(self._show, _named(request.name))

    async def Remove(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return await self._on_disk(self._remove, _named(request.name))

    async def Load(self, request: Any, context: Any) -> None:
        keep_alive = check_keep_alive(request.keep_alive_s) if request.HasField("keep_alive_s") else None
        depth = read_depth(request.depth) if request.HasField("depth") else None
        depth_max = request.depth_max if request.HasField("depth_max") else None
        if depth_max == 0:
            raise InvalidArgument("depth_max is out of range", 0, "give 1 or more", field="depth_max")
        check_plain(request.plain, depth)
        if request.plain and depth_max is not None:
            fix = "leave out one of them"
            raise InvalidArgument("a plain load has no head to limit", depth_max, fix, field="depth_max")
        store = read_store(request.store)
        settle_store(store, None, self._store)
        name = choose_model(request.name, self._default_model, self._residency)

        async def report(done: int, total: int) -> None:
            await context.write(models_pb2.LoadEvent(progress=messages.progress("load", done, total)))

        wish = {"headless": request.plain, "depth": depth, "depth_max": depth_max}
        consent = Consent(plain=request.plain, force=request.force)
        lease = await acquire(self._residency, self._files, name, report, consent=consent, **wish)
        try:
            resident = self._settle(lease, keep_alive, depth, store)
        finally:
            lease.release()
        await context.write(models_pb2.LoadEvent(resident=resident))

    async def Unload(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        name = _named(request.name)
        view = await asyncio.wrap_future(self._residency.unload(name))
        freed = view.bytes_body + view.bytes_head
        resident = messages.resident_message(view)
        return models_pb2.UnloadReply(name=view.name, bytes_freed=freed, resident=resident)

    def _settle(
        self, lease: Lease, keep_alive: float | None, depth: int | None, store: str | None
    ) -> models_pb2.Resident:
        if depth is not None and depth != AUTO_DEPTH:
            check_lease_depth(depth, lease)
        chosen = None if depth == AUTO_DEPTH else depth
        auto = None if depth is None else depth == AUTO_DEPTH
        self._residency.configure(lease, keep_alive_s=keep_alive, depth=chosen, auto=auto, store=store)
        view = self._residency.view_of(lease)
        return messages.resident_message(replace(view, in_use=view.in_use - 1))  # without our own lease

    def _list(self) -> models_pb2.ListReply:
        reply = models_pb2.ListReply()
        whole, damaged = self._catalog.scan()
        for pack in whole:
            try:
                reply.packs.append(self._describe(pack))
            except MtplxError as error:  # one that cannot be judged hides no other
                damaged[pack.name] = error
        for name, reason in sorted(damaged.items()):
            reply.damaged.add(name=name, reason=str(reason))
        return reply

    def _show(self, name: str) -> models_pb2.ShowReply:
        pack = self._catalog.resolve(name)
        described = self._describe(pack)
        described.fingerprint_body = body_fingerprint(pack)
        described.fingerprint_head = own_head_fingerprint(pack)
        text = json.dumps(pack.manifest.fields, ensure_ascii=False) if pack.manifest else ""
        return models_pb2.ShowReply(pack=described, manifest_json=text)

    def _remove(self, name: str) -> models_pb2.RemoveReply:
        check_removable(name)
        try:
            pack = self._catalog.resolve(name)
        except DataLoss:  # a damaged pack can go: it may be in memory from before
            views = [view for view in self._residency.views() if view.name == name]
            self._check_not_in_memory(views, name)
            return models_pb2.RemoveReply(name=name, bytes_freed=remove_pack(name, self._home))
        found = self._residency.find(pack)
        self._check_not_in_memory([found] if found else [], name)
        described = self._describe(pack)
        return models_pb2.RemoveReply(
            name=pack.name, bytes_freed=remove_pack(name, self._home), pack=described
        )

    def _check_not_in_memory(self, views: Sequence[ResidentView], name: str) -> None:
        for view in views:
            if view.state != "failed":
                check_not_busy(view, name)
                raise FailedPrecondition("model is in memory", name, f"`mtplx unload {name}` first")

    def _describe(self, pack: Pack) -> models_pb2.Pack:
        return messages.pack_message(pack, detect_head(pack), self._catalog.verdict(pack))

    async def _on_disk(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, work, *args)


def _hear(done: asyncio.Future[Pack]) -> None:
    """Takes note of an error that nobody waits for any more, so that the loop does not complain of it."""
    if not done.cancelled():
        done.exception()


def _named(name: str) -> str:
    if not name.strip():
        raise InvalidArgument("no model named", None, "give a name", field="name")
    return name.strip()
