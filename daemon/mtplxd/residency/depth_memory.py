"""Keeps what is known of each model's depths from one daemon to the next: what was learnt, and what tuning chose.

It decides no depth. A thread of its own names packs by content, which may read all their weights once, and writes what
was learnt; nobody waits for it but who loads a model, and that not for long. A controller gets its record on the engine
thread as soon as it is found: what was learnt, else the tuned curve.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mtplxd.engine.depth import DepthController
from mtplxd.errors import MtplxError, Unavailable
from mtplxd.packs.fingerprint import body_fingerprint, own_head_fingerprint
from mtplxd.packs.pack import Pack
from mtplxd.platform.machine import read_machine
from mtplxd.residency.catalog import sampler_defaults
from mtplxd.residency.collaborators import EngineCalls
from mtplxd.tune.keys import TunedKey, tuned_key
from mtplxd.tune.records import TuningFile, tuning_key
from mtplxd.tune.tuned import TunedDepth, TunedDepths

if TYPE_CHECKING:
    from mtplxd.families.load import LoadedModel

log = logging.getLogger(__name__)

SECTION = "depths"
EVERY_S = 60.0
"""A record is written at most so often while its model is in use."""
PATIENCE_S = 2.0
"""How long a load waits for its record: longer only the first time that a pack's weights are hashed."""
OnTuned = Callable[[Pack, TunedDepth | None], None]


@dataclass(slots=True)
class _Kept:
    """A controller in memory. `key` is empty until its pack is named; `written` is the state on the disk."""

    pack: Pack
    controller: DepthController
    backend: str
    key: str = ""
    recalled: Future[None] | None = None
    written: dict[str, Any] | None = None
    looked: float = 0.0


class DepthMemory:
    """The controllers of models in memory, and their records. Every method may be called from any thread."""

    def __init__(
        self, file: TuningFile, engine: EngineCalls, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file, self._engine, self._clock = file, engine, clock
        self._tuned = TunedDepths(file)
        self._on_tuned: OnTuned | None = None
        self._kept: dict[int, _Kept] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="depths")
        self._last: Future[None] | None = None

    def loaded(self, model: LoadedModel, backend: str) -> None:
        """A model is in memory: looks for what was learnt of it before."""
        if isinstance(model.depths, DepthController) and model.head is not None:
            kept = _Kept(model.pack, model.depths, backend, looked=self._clock())
            self._kept[model.number] = kept
            kept.recalled = self._submit(partial(self._recall, kept))

    def listen(self, on_tuned: OnTuned) -> None:
        """Who hears of the tuned depth of a model in memory, when it is found, chosen or cleared."""
        self._on_tuned = on_tuned

    def settle(self, model: LoadedModel, patience_s: float = PATIENCE_S) -> None:
        """Waits a little for what is known of a model that was loaded just now; never on the engine thread."""
        kept = self._kept.get(model.number)
        if kept is not None and kept.recalled is not None:
            wait([kept.recalled], patience_s)

    def key_of(self, model: LoadedModel, asked: Mapping[str, Any]) -> TunedKey:
        """The key of its tuned depth; `asked` is what was asked of the sampler. May read all its weights once."""
        kept = self._kept.get(model.number)
        return _tuned_key(model.pack, kept.backend if kept else "", asked)

    def find_tuned(self, key: TunedKey) -> TunedDepth | None:
        """The record of a key. Reads a file."""
        return self._tuned.find(key)

    def keep_tuned(self, number: int, key: TunedKey, tuned: TunedDepth) -> bool:
        """Keeps a choice, and has it used where its model is in memory; False where the disk does not take it."""
        saved = self._tuned.save(key, tuned)
        if saved:
            self._tell(number, key, tuned)
        return saved

    def clear_tuned(self, number: int, key: TunedKey) -> bool:
        """Drops a choice; whether there was one."""
        cleared = self._tuned.clear(key)
        self._tell(number, key, None)
        return cleared

    def _tell(self, number: int, key: TunedKey, tuned: TunedDepth | None) -> None:
        """The model may have left meanwhile; one of another sampler is not for requests that say nothing."""
        kept = self._kept.get(number)
        if kept is None or key != _tuned_key(kept.pack, kept.backend, {}):
            return
        if self._on_tuned is not None:
            self._on_tuned(kept.pack, tuned)
        if tuned is not None and tuned.curve:
            with suppress(Unavailable):  # a daemon that stops has kept it
                self._engine.call(partial(_hand_over, kept, dict(tuned.curve)), "starting")

    def leaving(self, model: LoadedModel) -> None:
        """A model that nobody uses is about to be freed: writes what was learnt since."""
        kept = self._kept.pop(model.number, None)
        if kept is not None:
            self._submit(partial(self._write, kept, kept.controller.state()))

    def sweep(self) -> None:
        """Writes what was learnt of models in use, where it is time."""
        now = self._clock()
        for kept in [*self._kept.values()]:
            if now - kept.looked >= EVERY_S and kept.controller.latest:
                kept.looked = now
                self._submit(partial(self._write, kept, kept.controller.latest))

    def close(self, patience_s: float) -> None:
        """Writes everything and waits for it; once the engine has stopped."""
        for kept in self._kept.values():
            self._submit(partial(self._write, kept, kept.controller.state()))
        self._kept.clear()
        if self._last is not None:
            wait([self._last], patience_s)
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[], None]) -> Future[None]:
        self._last = self._worker.submit(_logged, work)
        return self._last

    def _recall(self, kept: _Kept) -> None:
        body, head = body_fingerprint(kept.pack), own_head_fingerprint(kept.pack)
        kept.key = tuning_key(body, head, read_machine(), kept.backend)
        tuned = self._tuned.find(_tuned_key(kept.pack, kept.backend, {}))
        if tuned is not None and self._on_tuned is not None:
            self._on_tuned(kept.pack, tuned)
        kept.written = self._file.read(SECTION, kept.key)
        record = kept.written or (dict(tuned.curve) if tuned else None)
        if record:
            self._engine.call(partial(_hand_over, kept, record), "starting")

    def _write(self, kept: _Kept, state: dict[str, Any]) -> None:
        if kept.key and kept.controller.rounds and state != kept.written:
            self._file.write(SECTION, kept.key, state)
            kept.written = state


def _tuned_key(pack: Pack, backend: str, asked: Mapping[str, Any]) -> TunedKey:
    body, head = body_fingerprint(pack), own_head_fingerprint(pack)
    sampler = {"asked": dict(asked), "pack": asdict(sampler_defaults(pack))}
    return tuned_key(body, head, read_machine(), backend, sampler)


def _hand_over(kept: _Kept, record: dict[str, Any]) -> None:
    try:
        kept.controller.adopt(record)
    except ValueError as error:
        log.warning("the depths kept of %s are not used (%s): they are learnt anew", kept.pack.name, error)


def _logged(work: Callable[[], None]) -> None:
    """Runs a job that nobody waits for; a pack or a daemon that goes meanwhile is no fault of it."""
    try:
        work()
    except Unavailable:
        return
    except MtplxError as error:
        log.warning("the depths of a pack are not kept: %s", error)
    except Exception:  # the edge of the thread: what is lost is a record
        log.exception("the depths of a pack are not kept")
