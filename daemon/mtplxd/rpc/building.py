"""The builds that this daemon has in hand: each in its turn on a thread, with whoever follows it.

What a build does is `forge`'s, where it is written down `runs`'. Used on the event loop only, but for what the build's
thread calls.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from mtplxd.errors import Cancelled, FailedPrecondition, MtplxError, NotFound, Unavailable
from mtplxd.forge.foreman import Foreman
from mtplxd.forge.news import Told
from mtplxd.forge.outcome import QUEUED, RUNNING, Outcome
from mtplxd.forge.runs import Run
from mtplxd.rpc.bridge import Bridge

log = logging.getLogger(__name__)

BOUND = 64
"""News that a slow follower may have unread; of older ones only the newest count."""


@dataclass
class LiveBuild:
    """One build in hand. `latest` is the last news, `ended` has its outcome or its error, `turn` is its place on the
    thread.
    """

    run: Run
    name: str
    ended: asyncio.Future[Outcome]
    turn: Future[None] = field(default_factory=Future)
    latest: Told = field(default_factory=lambda: Told("queue", message="waits for its turn"))
    status: str = QUEUED
    cancelled: threading.Event = field(default_factory=threading.Event)
    _followers: list[Bridge[Told | None]] = field(default_factory=list)

    @contextmanager
    def followed(self) -> Iterator[Bridge[Told | None]]:
        """News from now on, the latest first; None after the last."""
        news: Bridge[Told | None] = Bridge(BOUND)
        news.put(self.latest)
        self._followers.append(news)
        if self.ended.done():
            news.finish(None)
        try:
            yield news
        finally:
            self._followers.remove(news)
            news.close()

    def tell(self, told: Told) -> None:
        self.latest = told
        for follower in self._followers:
            follower.put(told)

    def end(self, outcome: Outcome | None, error: BaseException | None) -> None:
        """Ends every stream that follows it."""
        if error is not None:
            self.ended.set_exception(error)
            self.ended.exception()  # heard, even where nobody follows
        else:
            assert outcome is not None
            self.ended.set_result(outcome)
        for follower in self._followers:
            follower.finish(None)


class Builds:
    """At most one at a time is at work; others wait. Made on the event loop."""

    def __init__(self, foreman: Foreman) -> None:
        self._foreman = foreman
        self._loop = asyncio.get_running_loop()
        self._live: dict[str, LiveBuild] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="forge")
        self._stopping = threading.Event()

    def begin(self, run: Run, name: str) -> LiveBuild:
        """Takes a run in hand. Raises FailedPrecondition while another of its name is, Unavailable."""
        if self._stopping.is_set():
            raise Unavailable("the daemon is stopping", None, "start it again")
        self.check_name(name)
        log.info("build %s begins", run.id)
        live = LiveBuild(run, name, self._loop.create_future())
        self._live[run.id] = live
        live.turn = self._thread.submit(self._work, live)
        return live

    def cancel(self, live: LiveBuild) -> None:
        """Asks one to end; it has ended at once where it waits for its turn."""
        live.cancelled.set()
        if live.turn.cancel():
            self._end(live, None, self._why(live, Cancelled("the build was stopped", live.run.id)))

    def check_name(self, name: str) -> None:
        """Raises FailedPrecondition where a build of this name is in hand."""
        for live in self._live.values():
            if live.name == name:
                fix = f"`mtplx forge runs --follow`, or `mtplx forge cancel {live.run.id}`"
                raise FailedPrecondition("a build of this name is in work", name, fix)

    def find(self, wanted: str) -> LiveBuild | None:
        """The one in hand of an id or a pack's name."""
        return next((live for live in self._live.values() if wanted in (live.run.id, live.name)), None)

    def working(self) -> LiveBuild:
        """The one at work, else the first that waits. Raises NotFound."""
        for status in (RUNNING, QUEUED):
            for live in self._live.values():
                if live.status == status:
                    return live
        raise NotFound("no build is in work", None, "see `mtplx forge runs`")

    @property
    def worker_bytes(self) -> int:
        """What the worker at work takes of the machine's memory."""
        return self._foreman.worker_bytes

    @property
    def any(self) -> bool:
        """Whether one is in hand, at work or in its turn."""
        return bool(self._live)

    def stop(self) -> None:
        """Ends all of them; they are taken up again by `resume`."""
        self._stopping.set()
        self._thread.shutdown(wait=False)

    def _work(self, live: LiveBuild) -> None:
        """In the thread."""
        outcome: Outcome | None = None
        error: Exception | None = None
        try:
            if self._is_over(live):
                raise Cancelled("the build was stopped", live.run.id)
            self._call(self._show_running, live)
            outcome = self._foreman.execute(
                live.run, lambda told: self._call(live.tell, told), lambda: self._is_over(live)
            )
        except Cancelled as stopped:
            error = self._why(live, stopped)
        except Exception as failed:  # the edge of the thread: whoever follows must hear of a bug
            error = failed
        self._call(self._end, live, outcome, error)

    def _is_over(self, live: LiveBuild) -> bool:
        return live.cancelled.is_set() or self._stopping.is_set()

    def _why(self, live: LiveBuild, stopped: Cancelled) -> MtplxError:
        if self._stopping.is_set():
            fix = f"start the daemon again, then `mtplx forge resume {live.run.id}`"
            return Unavailable("the daemon is stopping", live.run.id, fix)
        if live.cancelled.is_set():
            return Cancelled("the build was cancelled", live.run.id)
        return stopped

    def _show_running(self, live: LiveBuild) -> None:
        live.status = RUNNING

    def _end(self, live: LiveBuild, outcome: Outcome | None, error: BaseException | None) -> None:
        log.info("build %s ends: %s", live.run.id, outcome.verdict if outcome else type(error).__name__)
        self._live.pop(live.run.id, None)
        live.end(outcome, error)

    def _call(self, do: object, *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(do, *args)  # type: ignore[arg-type]
        except RuntimeError:  # the loop has ended, with everybody who followed
            return
