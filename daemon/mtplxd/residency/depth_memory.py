"""Keeps what each model's depth controller has learnt from one daemon to the next. It decides no depth.

A thread of its own names packs by content, which may read all their weights once, and writes the records; nobody waits
for it. A controller gets its record on the engine thread as soon as it is found.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mtplxd.engine.depth import DepthController
from mtplxd.errors import MtplxError, Unavailable
from mtplxd.packs.fingerprint import body_fingerprint, own_head_fingerprint
from mtplxd.packs.pack import Pack
from mtplxd.platform.machine import read_machine
from mtplxd.residency.collaborators import EngineCalls
from mtplxd.tune.records import TuningFile, tuning_key

if TYPE_CHECKING:
    from mtplxd.families.load import LoadedModel

log = logging.getLogger(__name__)

SECTION = "depths"
EVERY_S = 60.0
"""A record is written at most so often while its model is in use."""


@dataclass(slots=True)
class _Kept:
    """A controller in memory. `key` is empty until its pack is named; `written` is the state on the disk."""

    pack: Pack
    controller: DepthController
    key: str = ""
    written: dict[str, Any] | None = None
    looked: float = 0.0


class DepthMemory:
    """The controllers of models in memory, and their records. Every method may be called from any thread."""

    def __init__(
        self, file: TuningFile, engine: EngineCalls, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file, self._engine, self._clock = file, engine, clock
        self._kept: dict[int, _Kept] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="depths")
        self._last: Future[None] | None = None

    def loaded(self, model: LoadedModel, backend: str) -> None:
        """A model is in memory: looks for what was learnt of it before."""
        if isinstance(model.depths, DepthController) and model.head is not None:
            kept = _Kept(model.pack, model.depths, looked=self._clock())
            self._kept[model.number] = kept
            self._submit(partial(self._recall, kept, backend))

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

    def _submit(self, work: Callable[[], None]) -> None:
        self._last = self._worker.submit(_logged, work)

    def _recall(self, kept: _Kept, backend: str) -> None:
        body, head = body_fingerprint(kept.pack), own_head_fingerprint(kept.pack)
        kept.key = tuning_key(body, head, read_machine(), backend)
        record = self._file.read(SECTION, kept.key)
        if record is not None:
            kept.written = record
            self._engine.call(partial(_hand_over, kept, record), "starting")

    def _write(self, kept: _Kept, state: dict[str, Any]) -> None:
        if kept.key and kept.controller.rounds and state != kept.written:
            self._file.write(SECTION, kept.key, state)
            kept.written = state


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
