"""What is loaded: shared loads, keep-alive, eviction before a load, unloading. It decodes nothing.

One worker thread runs loads and unloads one after the other, so a plan is never made on a changing set.
Arrays are made and freed on the engine thread only, through `engine.call`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mtplxd.engine.scheduling.admission import RowNeed, judge_alone
from mtplxd.errors import (
    Cancelled,
    MtplxError,
    NotFound,
    ResourceExhausted,
    Unavailable,
)
from mtplxd.packs.gate import Consent, check_gate
from mtplxd.packs.memory import Footprint
from mtplxd.packs.pack import Pack
from mtplxd.residency.catalog import recommended_depth
from mtplxd.residency.collaborators import Backend, Catalog, EngineCalls, Loader, Memory, Verdict
from mtplxd.residency.entry import Entry, Lease, OnProgress, ResidentView, Waiter
from mtplxd.residency.plan import (
    Need,
    Refuse,
    Resident,
    decide,
    kv_budget,
    kv_bytes_per_token,
    margin_bytes,
)
from mtplxd.residency.pressure import Idle, Level
from mtplxd.residency.wishes import check_depths, check_not_busy, check_strain, check_wish
from mtplxd.tune.tuned import TunedDepth

if TYPE_CHECKING:
    from mtplxd.families.load import LoadedModel

T = TypeVar("T")

RETRY_AFTER_S = 5.0
READ_S = 1.0
"""How long a reading of the system's memory is believed where many are wanted."""


class Residency:
    """The models in memory. Every method may be called from any thread; those marked so read files."""

    def __init__(
        self,
        engine: EngineCalls,
        loader: Loader,
        catalog: Catalog,
        memory: Memory,
        *,
        budget: int,
        keep_alive_s: float,
        keep_alive_from: str = "default",
        clock: Callable[[], float] = time.monotonic,
        kv_held: Callable[[], int] = int,
        settle: Callable[[LoadedModel], None] | None = None,
        elsewhere: Callable[[], int] = int,
    ) -> None:
        """`kv_held` tells the bytes that contexts take now, `elsewhere` those that other processes of the daemon take;
        both are asked under a lock and must take none themselves. `settle` may wait a little for what is known of a
        model, before anybody gets it.
        """
        self._engine, self._loader, self._catalog, self._memory = engine, loader, catalog, memory
        self.budget = budget
        self._keep_alive_s, self._keep_alive_from = keep_alive_s, keep_alive_from
        self._clock, self._kv_held, self._settle = clock, kv_held, settle
        self._elsewhere = elsewhere
        self._read: tuple[float, int, int] | None = None
        self._entries: dict[str, Entry] = {}
        self._lock = threading.RLock()
        self._closing = False
        self._backend: Backend | None = None
        self.level = Level.NORMAL
        """How short of memory the machine is, as the guard saw it last."""
        self._jobs = ThreadPoolExecutor(1, thread_name_prefix="residency")

    def acquire(
        self,
        name: str,
        *,
        plain: bool = False,
        headless: bool = False,
        depth: int | None = None,
        depth_max: int | None = None,
        consent: Consent | None = None,
        progress: OnProgress | None = None,
    ) -> Future[Lease]:
        """A lease on the model, loading it first when it is not in memory (reads files then).

        plain: no head is needed, so a broken one does not stop the load; headless: it must be without one;
        depth: what will be drafted, so that a head which cannot is not loaded for it; consent: what the user agreed
        to where the pack's tier is a gate, None where it is none.
        Requests for one pack, by whatever name or link, share one load; cancelling every future of a load
        stops it. Raises NotFound, FailedPrecondition for a tier without consent or where the resident model is
        loaded another way, InvalidArgument for a depth above the head's limit, Unavailable when closing,
        ResourceExhausted where the machine has no memory left; the future may end with the errors of loading and
        ResourceExhausted.
        """
        entry = self._named(name)
        pack = entry.pack if entry else self._catalog.resolve(name)
        verdict = self._catalog.verdict(pack) if entry is None else None
        with self._lock:
            if self._closing:
                raise Unavailable("the daemon is stopping", None, "start it again")
            entry = self._entries.get(_key(pack))
            if entry is not None and entry.state in ("failed", "unloading"):
                entry = None
            if entry is None:
                verdict = verdict or self._catalog.verdict(pack)
            if consent is not None:
                judged = entry or verdict
                assert judged is not None
                check_gate(judged.tier, judged.reasons, name, consent)
            check_strain(self.level, name)
            if entry is None:
                assert verdict is not None
                headless = headless or (plain and not verdict.head_whole)
                check_depths(verdict, headless, depth, depth_max, pack.name)
                entry = self._begin(pack, verdict, headless, depth_max)
            check_wish(entry, headless, depth_max)
            entry.names.add(name)
            return self._join(entry, progress)

    def configure(
        self,
        lease: Lease,
        *,
        keep_alive_s: float | None = None,
        keep_alive_from: str = "load",
        pinned: bool | None = None,
        depth: int | None = None,
        auto: bool | None = None,
        store: str | None = None,
    ) -> None:
        """Changes what a loaded model has until it is unloaded: seconds of keep-alive and who said so, whether it goes
        for nobody else's sake, default depth, whether requests without one have it chosen as their text goes, what they
        have to do with the disk.
        """
        with self._lock:
            entry = self._entries[_key(lease.model.pack)]
            if keep_alive_s is not None:
                entry.keep(keep_alive_s, keep_alive_from)
            entry.pinned = entry.pinned if pinned is None else pinned
            entry.depth = entry.depth if depth is None else depth
            entry.auto = entry.auto if auto is None else auto
            entry.chosen = entry.chosen or depth is not None or auto is not None
            entry.store = entry.store if store is None else store

    def note_tuned(self, pack: Pack, tuned: TunedDepth | None) -> None:
        """What tuning chose for a pack, None for nothing: requests that name no depth have it from now on."""
        with self._lock:
            if (entry := self._entries.get(_key(pack))) is not None:
                entry.tuned = tuned

    def rejudge(self, pack: Pack) -> None:
        """Looks at a pack's files again and shows its tier anew, if it is in memory. Reads files."""
        verdict = self._catalog.verdict(self._catalog.resolve(str(pack.path)))
        with self._lock:
            if (entry := self._entries.get(_key(pack))) is not None:
                entry.tier, entry.reasons = verdict.tier, verdict.reasons

    def unload(self, name: str) -> Future[ResidentView]:
        """Frees an idle model; gives its view as it was. Raises NotFound, FailedPrecondition when busy."""
        with self._lock:
            entry = self._named(name)
            if entry is None:
                raise NotFound("model is not loaded", name, "see `mtplx ps`")
            view = entry.view(self._clock())
            if entry.state == "failed":
                del self._entries[entry.key]
                return _done(view)
            check_not_busy(view, name)
            return self._start_unload(entry)

    def idle(self) -> list[Idle]:
        """The models that nobody uses."""
        with self._lock:
            return [Idle(e.key, e.idle_since, e.pinned) for e in self._entries.values() if e.idle]

    def unload_idle(self, key: str) -> Future[ResidentView] | None:
        """Frees a model of `idle`, unless somebody uses it by now."""
        with self._lock:
            entry = self._entries.get(key)
            return (
                self._start_unload(entry) if entry is not None and entry.idle and not self._closing else None
            )

    def views(self) -> list[ResidentView]:
        """Every entry, in the order of their loads."""
        with self._lock:
            now = self._clock()
            return [entry.view(now) for entry in self._entries.values()]

    def find(self, pack: Pack) -> ResidentView | None:
        """The entry of a pack, whatever name it was loaded by."""
        with self._lock:
            entry = self._entries.get(_key(pack))
            return entry.view(self._clock()) if entry else None

    def view_of(self, lease: Lease) -> ResidentView:
        """The entry that a lease keeps."""
        with self._lock:
            return self._entries[_key(lease.model.pack)].view(self._clock())

    def only_resident(self) -> str | None:
        """The name of the one model that is loaded or loading, None if there is none or a choice."""
        with self._lock:
            names = [e.pack.name for e in self._entries.values() if e.state in ("loading", "ready")]
            return names[0] if len(names) == 1 else None

    def check_context(self, pack: Pack, tokens: int) -> None:
        """Refuses a request that would not fit if nothing else were in service: the engine's own rule, before it is
        queued. Raises ResourceExhausted.
        """
        with self._lock:
            entry = self._entries.get(_key(pack))
            model = entry.model if entry else None
        footprint = model.footprint if model else Footprint()
        if footprint == Footprint():  # nobody measured it: the plan's own figure
            footprint = Footprint(
                kv_bytes_per_token(pack.config, self._backend is None or self._backend.widens)
            )
        never = judge_alone(RowNeed(tokens, tokens), footprint, self.kv_budget(self._kv_held()))
        if never is not None:
            raise never.error

    def kv_budget(self, held: int) -> int:
        """Bytes that contexts may take in all, `held` of which they take now. Cheap: for every turn."""
        with self._lock:
            planned = [entry.need for entry in self._entries.values() if entry.state != "failed"]
            margin = margin_bytes(self._memory.total)
            free, used = self._lately()
            budget = self.budget - self._elsewhere()
            return kv_budget(budget, self._spare(free), margin, planned, held, used)

    def _lately(self) -> tuple[int, int]:
        """What the system could give, and what this process takes of it."""
        now = self._clock()
        if self._read is None or not 0 <= now - self._read[0] < READ_S:
            self._read = (now, self._memory.free(), self._memory.used())
        return self._read[1:]

    def _spare(self, free: int, left: int = 0) -> int:
        """What of it may be planned with: where memory is short, nothing but the bytes that have `left` make room."""
        return free if self.level is Level.NORMAL else min(free, margin_bytes(self._memory.total) + left)

    def sweep(self) -> None:
        """Unloads what has been idle for longer than its keep-alive."""
        with self._lock:
            now = self._clock()
            for entry in [*self._entries.values()]:
                if entry.idle and not entry.pinned and 0 <= entry.keep_alive_s <= now - entry.idle_since:
                    self._start_unload(entry)

    def close(self) -> None:
        """Stops loads, fails everybody who waits and takes no more. Models go with the process."""
        with self._lock:
            self._closing = True
            for entry in self._entries.values():
                if entry.state == "loading":
                    self._fail(entry, Unavailable("the daemon is stopping", None, "start it again"))
        self._jobs.shutdown(wait=False, cancel_futures=True)

    def _named(self, name: str) -> Entry | None:
        with self._lock:
            return next((e for e in self._entries.values() if name in e.names or name == e.pack.name), None)

    def _begin(self, pack: Pack, verdict: Verdict, headless: bool, depth_max: int | None) -> Entry:
        entry = Entry(
            key=_key(pack),
            pack=pack,
            tier=verdict.tier,
            reasons=verdict.reasons,
            headless=headless,
            depth_max=depth_max,
            keep_alive_s=self._keep_alive_s,
            keep_alive_from=self._keep_alive_from,
        )
        self._entries.pop(entry.key, None)
        self._entries[entry.key] = entry
        self._jobs.submit(self._load, entry)
        return entry

    def _join(self, entry: Entry, progress: OnProgress | None) -> Future[Lease]:
        if entry.state == "ready":
            return _done(self._grant(entry))
        waiter = Waiter(Future(), progress)
        entry.waiters.append(waiter)
        if progress is not None:
            progress(*entry.progress)
        return waiter.future

    def _grant(self, entry: Entry) -> Lease:
        assert entry.model is not None
        entry.in_use += 1
        depth, auto = entry.default
        return Lease(entry.model, depth, partial(self._give_back, entry), auto=auto, store=entry.store)

    def _give_back(self, entry: Entry) -> None:
        with self._lock:
            entry.in_use -= 1
            self._rest(entry)

    def _rest(self, entry: Entry) -> None:
        entry.idle_since = self._clock()
        if entry.idle and not entry.pinned and entry.keep_alive_s == 0:
            self._start_unload(entry)

    def _start_unload(self, entry: Entry) -> Future[ResidentView]:
        view = entry.view(self._clock())
        entry.state = "unloading"
        return self._jobs.submit(self._unload, entry, view)

    def _unload(self, entry: Entry, view: ResidentView) -> ResidentView:
        try:
            self._free(entry)
        finally:
            with self._lock:
                if self._entries.get(entry.key) is entry:
                    del self._entries[entry.key]
        return view

    def _free(self, entry: Entry) -> None:
        models, entry.model = [entry.model], None
        self._engine.call(partial(self._loader.free, models), f"unloading {entry.pack.name}").result()

    def _load(self, entry: Entry) -> None:
        try:
            entry.model = self._load_model(entry)
            if self._settle is not None:
                self._settle(entry.model)
            self._ready(entry, entry.model)
        except Cancelled as error:
            self._cancelled(entry, error)
        except Exception as error:  # edge of the worker thread: whoever waits must hear of a bug, too
            if entry.model is not None:
                self._free(entry)
            self._fail(entry, error)

    def _load_model(self, entry: Entry) -> LoadedModel:
        if entry.abandoned:
            raise Cancelled("loading was cancelled", entry.pack.name)
        widen = self._learn_backend().widens
        entry.need = self._catalog.need(entry.pack, headless=entry.headless, widen=widen)
        self._catalog.fingerprint(entry.pack)  # nobody waits for it but those who wait for this load
        self._make_room(entry)
        load = partial(
            self._loader.load,
            entry.pack,
            plain=entry.headless,
            depth_max=entry.depth_max,
            progress=entry.report,
            cancelled=lambda: entry.abandoned or self._closing,
        )
        try:
            return self._engine.call(load, f"loading {entry.pack.name}").result()
        except MemoryError as error:
            raise self._too_large(entry, entry.need, self._memory.free()) from error

    def _learn_backend(self) -> Backend:
        """Asked once, by the first load; the device's own limit caps the budget from then on."""
        if self._backend is None:
            self._backend = self._engine.call(self._loader.backend, "starting").result()
            if self._backend.limit is not None:
                self.budget = min(self.budget, self._backend.limit)
        return self._backend

    def _make_room(self, entry: Entry) -> None:
        left = 0
        while True:
            with self._lock:
                residents = [_resident(e) for e in self._entries.values() if e.model is not None]
                free, used = self._spare(self._memory.free(), left), self._memory.used()
                margin, held = margin_bytes(self._memory.total), self._kv_held()
                budget = self.budget - self._elsewhere()
                decision = decide(entry.need, budget, free, margin, residents, held, used)
                if isinstance(decision, Refuse):
                    raise self._too_large(entry, entry.need, decision.available)
                if not decision.evict:
                    return
                victim = self._entries[decision.evict[0]]
                view, victim.state = victim.view(self._clock()), "unloading"
                left += victim.need.body + victim.need.head
            self._unload(victim, view)

    def _too_large(self, entry: Entry, need: Need, available: int) -> ResourceExhausted:
        busy = any(e.in_use for e in self._entries.values())
        return ResourceExhausted(
            "not enough memory for this model",
            f"{entry.pack.name} needs {need.total} bytes, {available} are available",
            "unload a model, choose a smaller one or raise --memory-budget",
            needed=need.total,
            available=available,
            retry_after_s=RETRY_AFTER_S if busy else 0.0,
        )

    def _ready(self, entry: Entry, model: LoadedModel) -> None:
        with self._lock:
            entry.depth = default_depth(entry.pack, model)
            entry.state = "ready"
            waiters, entry.waiters = entry.waiters, []
            for waiter in waiters:
                if waiter.future.set_running_or_notify_cancel():
                    waiter.future.set_result(self._grant(entry))
            self._rest(entry)

    def _cancelled(self, entry: Entry, error: Cancelled) -> None:
        with self._lock:
            if self._closing or entry.abandoned:
                self._fail(entry, error)
                self._entries.pop(entry.key, None)
            else:  # somebody joined while the load was being given up
                self._jobs.submit(self._load, entry)

    def _fail(self, entry: Entry, error: Exception) -> None:
        with self._lock:
            entry.state = "failed"
            entry.error = error if isinstance(error, MtplxError) else None
            waiters, entry.waiters = entry.waiters, []
        for waiter in waiters:
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_exception(error)


def default_depth(pack: Pack, model: LoadedModel) -> int:
    """The depth of requests that name none: the pack's recommendation, else 1 with a head and 0 without."""
    if model.head is None:
        return 0
    recommended = recommended_depth(pack)
    return min(1 if recommended is None else recommended, model.depth_max)


def _key(pack: Pack) -> str:
    return os.path.realpath(pack.path)


def _resident(entry: Entry) -> Resident:
    return Resident(entry.key, entry.need, entry.idle and not entry.pinned, entry.idle_since)


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future
