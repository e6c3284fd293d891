"""Answers the helper's clients and keeps its clock: leases end, fans are kept, signals end it. One thread, no wait but
the one for the next of these.

What a line means is `protocol`'s, who holds is `lease`'s, what fans do is `keeper`'s.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable
from typing import Any

from . import clock
from .fans import Reading
from .keeper import Keeper
from .lease import Leases, Rate
from .peers import peer_uid
from .protocol import BadLine, Lines, Request, parse, refusal, reply

MOST_CLIENTS = 16
MOST_BAD_LINES = 8
"""A connection that says so many is closed."""
MOST_UNSENT = 65536
LONGEST_SLEEP_S = 30.0
"""How often an idle helper looks whether the machine has slept."""
STOP_S = 15.0
"""How long fans may take to be automatic before a helper that was told to end does so all the same."""
SLEPT_S = 1.0


class Client:
    """One connection: what it has yet to say in full, and what it has yet to be told."""

    def __init__(self, connection: socket.socket, number: int, now: float) -> None:
        self.connection, self.number = connection, number
        self.lines, self.rate, self.unsent, self.bad = Lines(), Rate(now), b"", 0


class Server:
    """Serves on a listening socket until `stop`. `allowed` are the users who may hold fans, beside root."""

    def __init__(
        self,
        listener: socket.socket,
        keeper: Keeper,
        allowed: frozenset[int],
        log: Callable[[str], None],
        now: Callable[[], float] = clock.now,
    ) -> None:
        self._listener, self._keeper, self._allowed = listener, keeper, allowed | {0}
        self._log, self._now = log, now
        self._leases = Leases()
        self._clients: dict[int, Client] = {}
        self._count = 0
        self._slept = clock.slept()
        self._due = now()
        self._stop_at: float | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)

    def stop(self) -> None:
        """Give the fans back and end; safe in a signal handler."""
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"x")

    def run(self) -> bool:
        """Serves until told to stop; whether fans were read back as automatic then."""
        self._tend()
        while not self._over():
            self._turn()
        for client in list(self._clients.values()):
            self._close(client)
        self._selector.close()
        self._listener.close()
        return self._keeper.outcome.state == "automatic"

    def _turn(self) -> None:
        """One wait and all that it brings. A fault in one client's part is that client's end, never the helper's."""
        for key, events in self._selector.select(self._patience()):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj == self._wake_read:
                self._begin_stop()
            elif key.data.number in self._clients:
                self._serve(key.data, events)
        self._tend()

    def _tend(self) -> None:
        """Leases that are over end, fans follow."""
        now = self._now()
        if (slept := clock.slept()) - self._slept > SLEPT_S:
            self._slept = slept
            self._log("the machine has slept: fans are looked at again")
            self._keeper.check(now)
        for number in self._leases.expire(now):
            self._log(f"the lease of client {number} has run out")
        self._keeper.want(self._leases.held, now)
        self._due = self._keeper.step(now)
        if self._keeper.lost:
            self._log(f"leases end: {self._keeper.lost}")
            self._leases.drop()
            self._keeper.lost = ""

    def _patience(self) -> float:
        moments = (self._leases.next_end(), self._due, self._stop_at)
        least = min(moment for moment in moments if moment is not None)
        return max(0.0, min(least - self._now(), LONGEST_SLEEP_S))

    def _over(self) -> bool:
        if self._stop_at is None:
            return False
        return self._keeper.outcome.state == "automatic" or self._now() >= self._stop_at

    def _begin_stop(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._wake_read, 64)
        if self._stop_at is None:
            self._log("stopping")
            self._stop_at = self._now() + STOP_S
            self._leases.drop()
            self._selector.unregister(self._listener)
            self._keeper.want(False, self._now())
            self._keeper.check(self._now())

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        try:
            uid = peer_uid(connection)
            connection.setblocking(False)
        except OSError:
            connection.close()
            return
        if uid not in self._allowed or not self._make_room():
            self._log(f"refused a connection of user {uid}")
            text = (
                f"user {uid} may not hold fans here: install the helper as that user"
                if (uid not in self._allowed)
                else "too many clients"
            )
            with contextlib.suppress(OSError):
                connection.send(refusal("denied", text))
            connection.close()
            return
        self._count += 1
        client = Client(connection, self._count, self._now())
        self._clients[client.number] = client
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _make_room(self) -> bool:
        """Closes the oldest connection that holds nothing, where there are too many."""
        if len(self._clients) < MOST_CLIENTS:
            return True
        idle = [client for number, client in self._clients.items() if number not in self._leases.holders]
        if idle:
            self._close(idle[0])
        return bool(idle)

    def _serve(self, client: Client, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._send(client, b"")
            if events & selectors.EVENT_READ:
                data = client.connection.recv(4096)
                if not data:
                    self._close(client)
                    return
                self._hear(client, data)
        except BlockingIOError:
            return
        except OSError:
            self._close(client)

    def _hear(self, client: Client, data: bytes) -> None:
        try:
            lines = client.lines.feed(data)
        except BadLine as error:
            self._send(client, refusal(error.code, str(error)))
            self._close(client)
            return
        for line in lines:
            try:
                answer = self._answer(client, parse(line))
            except BadLine as error:
                client.bad += 1
                answer = refusal(error.code, str(error))
            self._send(client, answer)
            if client.bad >= MOST_BAD_LINES:
                self._close(client)
            if client.number not in self._clients:
                return

    def _answer(self, client: Client, request: Request) -> bytes:
        now = self._now()
        if request.verb == "status":
            return reply(**self._status(now))
        if request.verb == "release":
            return reply(released=self._leases.release(client.number))
        if not client.rate.take(now):
            raise BadLine("too-often", "renew a lease at most ten times a second")
        if refused := self._why_not(now):
            return refusal(*refused)
        self._leases.hold(client.number, request.seconds, now)
        return reply(lease_s=request.seconds, state=self._keeper.outcome.state)

    def _why_not(self, now: float) -> tuple[str, str] | None:
        """Why nobody gets a lease just now."""
        state = self._keeper.outcome
        if self._stop_at is not None:
            return "stopping", "the helper is about to end"
        if state.state == "unreadable":
            return "unreadable", f"fans cannot be read ({state.error})"
        if not self._keeper.ready:
            return "starting", "fans are not back from another life yet: ask again"
        if self._keeper.refuses(now):
            return "refused", f"fans could not be had a moment ago ({state.error or 'no fan'})"
        return None

    def _status(self, now: float) -> dict[str, Any]:
        outcome, left = self._keeper.outcome, self._leases.left(now)
        return {
            "state": outcome.state,
            "attempts": outcome.attempts,
            "error": outcome.error[:512],
            "restored": outcome.restored,
            "lease_s": None if left is None else round(max(0.0, left), 3),
            "holders": len(self._leases.holders),
            "backend": self._keeper.backend_name,
            "pid": os.getpid(),
            "fans": show_fans(self._keeper.look()),
        }

    def _send(self, client: Client, data: bytes) -> None:
        """Sends what the connection takes; one that takes nothing while more and more waits is closed."""
        client.unsent += data
        try:
            sent = client.connection.send(client.unsent)
            client.unsent = client.unsent[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self._close(client)
            return
        if len(client.unsent) > MOST_UNSENT:
            self._close(client)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unsent else 0)
        self._selector.modify(client.connection, wanted, client)

    def _close(self, client: Client) -> None:
        """A connection that ends takes its lease along."""
        if self._clients.pop(client.number, None) is None:
            return
        self._selector.unregister(client.connection)
        client.connection.close()
        if self._leases.release(client.number):
            self._log(f"client {client.number} left, and its lease with it")


def show_fans(reading: Reading | None) -> list[dict[str, Any]] | None:
    """Fans as JSON values; None where they cannot be read."""
    if reading is None:
        return None
    return [
        {
            "rpm": round(fan.rpm, 1),
            "target": round(fan.target, 1),
            "min": round(fan.min, 1),
            "max": round(fan.max, 1),
            "automatic": fan.automatic,
        }
        for fan in reading.fans
    ]
