"""The daemon's status as one message, built at most once in a short while however many streams ask."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from mtplx_proto.v1 import system_pb2

from mtplxd import __version__
from mtplxd.config import Settings
from mtplxd.engine.engine import Engine
from mtplxd.paths import Home
from mtplxd.platform.device import DeviceMemory
from mtplxd.platform.wakefulness import PowerView
from mtplxd.residency.collaborators import Memory
from mtplxd.residency.guard import GuardView
from mtplxd.residency.manager import Residency
from mtplxd.rpc import messages
from mtplxd.rpc.calls import EarlyCalls
from mtplxd.store.prefixes import PrefixCounts

FRESH_S = 0.1
"""Streams share a picture that is not older than this."""


@dataclass(frozen=True)
class BlasFacts:
    """The CPU's matrix library; `gflops` is what a small product measured, 0 before that."""

    name: str = ""
    path: str = ""
    threads: int = 0
    gflops: float = 0.0


@dataclass
class Facts:
    """What is learned once the daemon runs. The engine thread replaces `blas`; the loop reads it."""

    blas: BlasFacts = field(default_factory=BlasFacts)
    degraded: list[str] = field(default_factory=list)


class StatusBoard:
    """Builds StatusReply messages. Used on the event loop only."""

    def __init__(
        self,
        home: Home,
        settings: Settings,
        engine: Engine,
        residency: Residency,
        memory: Memory,
        early: EarlyCalls,
        facts: Facts,
        draining: Callable[[], bool],
        stalled: Callable[[], bool],
        prefixes: Callable[[], PrefixCounts] = PrefixCounts,
        store: Callable[[], system_pb2.StoreState] = system_pb2.StoreState,
        guard: Callable[[], GuardView] = GuardView,
        device: Callable[[], DeviceMemory] = DeviceMemory,
        power: Callable[[], PowerView] = PowerView,
        thermal: Callable[[], system_pb2.Thermal] = system_pb2.Thermal,
    ) -> None:
        self._home, self._settings = home, settings
        self._engine, self._residency, self._memory, self._early = engine, residency, memory, early
        self._facts, self._draining, self._stalled = facts, draining, stalled
        self._prefixes, self._store = prefixes, store
        self._guard, self._device, self._power = guard, device, power
        self._thermal = thermal
        self._began = time.monotonic()
        self._shared: tuple[float, system_pb2.StatusReply] | None = None

    def shared(self) -> system_pb2.StatusReply:
        """A recent picture; callers must not change it."""
        now = time.monotonic()
        if self._shared is None or now - self._shared[0] > FRESH_S:
            self._shared = (now, self.build())
        return self._shared[1]

    def build(self) -> system_pb2.StatusReply:
        """A picture of this moment."""
        now = time.monotonic()
        engine = self._engine.snapshot()
        early = self._early.all()
        return system_pb2.StatusReply(
            version=__version__,
            pid=os.getpid(),
            uptime_s=now - self._began,
            socket=str(self._settings.socket),
            home=str(self._home.root),
            state="draining" if self._draining() else "serving",
            blas=system_pb2.Blas(**asdict(self._facts.blas)),
            models=[messages.resident_message(view) for view in self._residency.views()],
            queue=system_pb2.Queue(running=engine.running, waiting=engine.waiting + len(early)),
            memory=self._memory_message(),
            in_flight=messages.in_flight_messages(early, engine, now),
            counters=messages.counters_message(engine),
            degraded=self._facts.degraded,
            settings=[
                system_pb2.Setting(key=setting.key, value=setting.value, source=setting.source)
                for setting in self._settings.shown
            ],
            python=platform.python_version(),
            engine=messages.engine_message(engine, self._stalled(), self._prefixes()),
            store=self._store(),
            power=system_pb2.Power(**asdict(self._power())),
            thermal=self._thermal(),
        )

    def _memory_message(self) -> system_pb2.Memory:
        used, guard = self._memory.used(), self._guard()
        return system_pb2.Memory(
            total=self._memory.total,
            plan=self._residency.budget,
            used=used,
            pressure=used / max(1, self._residency.budget),
            free=self._memory.cheap_free() or 0,
            level=guard.level.name.lower(),
            reading=guard.reading,
            given_back=guard.last,
            relieved=guard.steps,
            device=system_pb2.DeviceMemory(**asdict(self._device())),
        )
