"""Residency's collaborators without models: an engine thread, a loader that can be held, packs, readings."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mtplxd.errors import Cancelled, NotFound
from mtplxd.packs.memory import Footprint
from mtplxd.packs.pack import Pack
from mtplxd.residency.collaborators import Backend, Verdict
from mtplxd.residency.manager import Residency
from mtplxd.residency.plan import GIB, RUNTIME_BYTES, Need

WAIT_S = 30.0


class ThreadEngine:
    """`call` on a thread of its own, as the engine's."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fake-engine")
        self.reasons: list[str] = []

    def call(self, fn: Callable[[], Any], reason: str) -> Future[Any]:
        self.reasons.append(reason)
        return self._thread.submit(fn)


@dataclass(frozen=True)
class FakeTarget:
    """How many tokens there are."""

    vocab_size: int = 256


@dataclass
class FakeModel:
    """What residency and rpc read of a loaded model."""

    name: str
    pack: Pack
    head: object | None
    depth_max: int
    bytes_body: int = 100
    bytes_head: int = 10
    context: int = 64
    degraded: list[str] = field(default_factory=list)
    tokenizer: Any = None
    target: FakeTarget = FakeTarget()
    eos_ids: frozenset[int] = frozenset({2})
    footprint: Footprint = Footprint()  # noqa: RUF009 - frozen
    apart: str = ""

    @property
    def troubles(self) -> tuple[str, ...]:
        return tuple(self.degraded)


class HeldLoader:
    """Loads at once, or only when `gate` is set; keeps a list of what happened."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.fails: Exception | None = None
        self.tokenizer: Any = None
        self.limit: int | None = None
        self.footprint = Footprint()

    def hold(self) -> None:
        self.gate.clear()
        self.begun.clear()

    def backend(self) -> Backend:
        return Backend(widens=False, limit=self.limit)

    def load(
        self,
        pack: Pack,
        *,
        plain: bool,
        depth_max: int | None,
        progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
    ) -> Any:
        self.events.append(f"load {pack.name}")
        progress(1, 2)
        self.begun.set()
        while not self.gate.wait(0.01):
            if cancelled():
                raise Cancelled("loading was cancelled")
        if self.fails is not None:
            raise self.fails
        progress(2, 2)
        head = None if plain else object()
        limit = 0 if plain else depth_max or 8
        footprint = self.footprint
        return FakeModel(pack.name, pack, head, limit, tokenizer=self.tokenizer, footprint=footprint)

    def free(self, models: list[Any]) -> None:
        self.events.append(f"free {models[0].name}")
        models.clear()


class FakeCatalog:
    """Packs by name; a folder's path and links to it mean the same pack."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.packs: dict[str, Pack] = {}
        self.needs: dict[str, int] = {}
        self.kv = 0
        self.whole = True
        self.hashed: list[tuple[str, str]] = []
        self.tier, self.reasons = "verified", ("verified on 2026-01-31",)
        self.depth_limit: int | None = None

    def add(self, name: str, need: int = GIB) -> Pack:
        folder = self._root / name
        folder.mkdir(parents=True, exist_ok=True)
        config = {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8}
        self.packs[name] = Pack(name, folder, config, None, {}, None)
        self.needs[name] = need
        return self.packs[name]

    def resolve(self, name: str) -> Pack:
        for pack in self.packs.values():
            if name == pack.name:
                return pack
            if os.path.realpath(name) == os.path.realpath(pack.path):
                return replace(pack, name=Path(name).name, path=Path(name))
        raise NotFound("no such model", name)

    def verdict(self, pack: Pack) -> Verdict:  # noqa: ARG002
        return Verdict(self.tier, self.reasons, self.whole, 8 if self.whole else None, self.depth_limit)

    def need(self, pack: Pack, *, headless: bool, widen: bool) -> Need:  # noqa: ARG002
        return Need(self.needs[pack.name] - self.kv, kv=self.kv)

    def fingerprint(self, pack: Pack) -> None:
        self.hashed.append((pack.name, threading.current_thread().name))


@dataclass
class FixedMemory:
    total: int = 64 * GIB
    free_bytes: int = 64 * GIB
    used_bytes: int = RUNTIME_BYTES

    def free(self) -> int:
        return self.free_bytes

    def used(self) -> int:
        return self.used_bytes

    def cheap_free(self) -> int | None:
        return self.free_bytes


class Clock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Rig:
    """A residency and all its fakes."""

    residency: Residency
    engine: ThreadEngine
    loader: HeldLoader
    catalog: FakeCatalog
    memory: FixedMemory
    clock: Clock
    kv_held: list[int]
    elsewhere: list[int]

    def load(self, name: str, **wish: Any) -> None:
        """Load a model and leave it idle."""
        self.residency.acquire(name, **wish).result(WAIT_S).release()

    def states(self) -> dict[str, str]:
        return {view.name: view.state for view in self.residency.views()}


def make_rig(root: Path, budget: int = 32 * GIB, keep_alive_s: float = -1.0) -> Rig:
    engine, loader, catalog = ThreadEngine(), HeldLoader(), FakeCatalog(root)
    memory, clock = FixedMemory(), Clock()
    kv_held, elsewhere = [0], [0]
    residency = Residency(
        engine,
        loader,
        catalog,
        memory,
        budget=budget,
        keep_alive_s=keep_alive_s,
        clock=clock,
        kv_held=lambda: kv_held[0],
        elsewhere=lambda: elsewhere[0],
    )
    return Rig(residency, engine, loader, catalog, memory, clock, kv_held, elsewhere)
