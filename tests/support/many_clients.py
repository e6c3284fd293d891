"""Clients at work at the same time on one real daemon, for tests: each on a thread and a connection of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtplx_client import Client
from mtplx_client.errors import MtplxError
from mtplx_client.events import Final, Progress, Reply, Text
from mtplx_client.replies import InFlight, Status
from support.daemon_process import DaemonProcess
from support.tiny_pack import make_tiny_pack

LIMIT_S = 120.0
"""How long a test waits for what must come; no test asserts a time."""
ENDLESS = 4000
"""Tokens that the slow pack does not get to, for a test ends its answers; fewer than a client may leave unread."""


class Listener:
    """One request, listened to on a thread of its own. Waits raise AssertionError where it ended without."""

    def __init__(
        self,
        socket: Path,
        prompt: str | None,
        *,
        through: Client | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        """`through` asks by an existing client's connection and name."""
        self.tokens: list[int] = []
        self.final: Final | None = None
        self.error: MtplxError | None = None
        self.first_at = self.ended_at = 0.0
        self._stages: set[str] = set()
        self._changed = threading.Condition()
        self._over = False
        self._own = None if through else Client(socket=socket)
        client = through or self._own
        assert client is not None
        self._events = client.generate(prompt, timeout=timeout, **options)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def wait_tokens(self, count: int) -> None:
        """Until it has heard so many tokens."""
        self._wait(lambda: len(self.tokens) >= count, f"{count} tokens")

    def wait_stage(self, stage: str) -> None:
        """Until it was told of that stage."""
        self._wait(lambda: stage in self._stages, stage)

    def leave(self) -> None:
        """Hangs up: its connection is closed."""
        assert self._own is not None, "another's connection"
        self._own.close()

    def end(self) -> Listener:
        """Waits for the end, whatever it is."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "no end"
        if self._own is not None:
            self._own.close()
        return self

    @property
    def outcome(self) -> tuple[str, str]:
        """Finish reason and origin, or the name of what was raised."""
        if self.error is not None:
            return type(self.error).__name__, ""
        return (self.final.finish_reason, self.final.stop_origin) if self.final else ("", "")

    def _listen(self) -> None:
        try:
            for event in self._events:
                with self._changed:
                    self._take(event)
                    self._changed.notify_all()
        except MtplxError as error:
            self.error = error
        with self._changed:
            self._over, self.ended_at = True, time.perf_counter()
            self._changed.notify_all()

    def _take(self, event: object) -> None:
        if isinstance(event, Text):
            self.first_at = self.first_at or time.perf_counter()
            self.tokens += event.tokens
        elif isinstance(event, Progress):
            self._stages.add(event.stage)
        elif isinstance(event, Final):
            self.final = event

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: reached() or self._over, LIMIT_S)
        assert reached(), f"{what} never came: {self.outcome}"


def complete_all(socket: Path, asks: Sequence[dict[str, Any]]) -> list[Reply]:
    """All requests at once, each by a client of its own; what one raises is raised."""

    def ask(options: dict[str, Any]) -> Reply:
        with Client(socket=socket) as client:
            return client.complete(**options)

    with ThreadPoolExecutor(len(asks)) as pool:
        return list(pool.map(ask, asks))


def complete_each(client: Client, asks: Iterable[dict[str, Any]]) -> list[Reply]:
    """One after the other, nobody else there."""
    return [client.complete(**options) for options in asks]


def wait_status(client: Client, reached: Callable[[Status], bool]) -> Status:
    """Looks until status says so."""
    end = time.monotonic() + LIMIT_S
    while not reached(status := client.status()):
        assert time.monotonic() < end, status.in_flight
    return status


def wait_idle(client: Client) -> Status:
    """Looks until nothing is in flight, then checks that nothing is held either."""
    status = wait_status(client, lambda now: not now.in_flight and not any(one.in_use for one in now.models))
    engine = status.engine
    assert (engine.rows, engine.prefilling, engine.set_aside) == (0, 0, 0)
    assert (status.queue.running, status.queue.waiting) == (0, 0)
    return status


def make_slow_pack(folder: Path) -> Path:
    """A tiny model with so many layers, and room for so long answers, that one lasts while a busy machine sees to it
    that others wait."""
    return make_tiny_pack(folder, layers=24, context=2 * ENDLESS)


def wait_queued(client: Client, count: int = 1) -> list[InFlight]:
    """Looks until so many requests wait for a row, and gives them; those being tokenised are not that far."""

    def found(status: Status) -> list[InFlight]:
        return [one for one in status.in_flight if one.waits_for == "a free row"]

    return found(wait_status(client, lambda now: len(found(now)) >= count))


def wait_state(client: Client, state: str, count: int = 1) -> list[InFlight]:
    """Looks until so many requests are in that state, and gives them."""

    def found(status: Status) -> list[InFlight]:
        return [one for one in status.in_flight if one.state == state]

    return found(wait_status(client, lambda now: len(found(now)) >= count))


@contextmanager
def loaded_client(daemon: DaemonProcess, model: Path) -> Iterator[Client]:
    """A client of a daemon that has the model; nothing may be left in flight, nor told of in the log, in the end."""
    with Client(socket=daemon.socket) as connected:
        connected.load(str(model), force=True)
        yield connected
        wait_idle(connected)
        assert "Traceback" not in daemon.log()
