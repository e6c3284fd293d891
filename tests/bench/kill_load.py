"""Clients of a daemon that will be killed: what they ask of it, and what it acknowledged to them. Kills nothing.

A client asks for prompts with beginnings in common, goes on with sessions, leaves in the middle, and tidies at times.
Each text that it hears is compared with the cold one at once. It ends where the daemon does.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cold_texts import Cold, ColdTalk, Texts, common
from mtplx_client import Client
from mtplx_client.errors import MtplxError, NotFound
from mtplx_client.events import Text

STORES = ("on", "on", "on", "write-only", "off")


@dataclass
class Conversation:
    """A session of the daemon: how many turns it acknowledged, whether it was told to remove it, and said it had."""

    talk: ColdTalk
    texts: Texts
    turns: int = 0
    removing: bool = False
    removed: bool = False


@dataclass
class Book:
    """What all clients of all lives were told. `faults` are answers that were wrong."""

    sessions: dict[str, Conversation] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    answers: int = 0
    faults: list[str] = field(default_factory=list)


class LoadClient:
    """One of several clients, with a connection and sessions of its own."""

    def __init__(
        self, socket: Path, texts: Texts, book: Book, number: int, draw: random.Random, *, removes: bool
    ) -> None:
        self._client, self._texts, self._book = Client(socket=socket, reconnect_s=0.0), texts, book
        self._number, self._draw, self._removes = number, draw, removes

    def live(self, over: threading.Event) -> None:
        """Asks until it is over or the daemon is gone; what else goes wrong is a fault."""
        try:
            while not over.is_set():
                self._choose()()
                self._book.answers += 1
        except MtplxError as error:
            if not over.is_set():
                self._book.faults.append(f"{type(error).__name__}: {error}")
        finally:
            self._client.close()

    def _choose(self) -> Callable[[], object]:
        ways = {self._ask: 50, self._turn: 30, self._leave: 14, self._client.cache_prune: 3, self._verify: 3}
        [way] = self._draw.choices([*ways], [*ways.values()])
        return way

    def _ask(self) -> None:
        """A prompt, another that may begin like it, and the first one again."""
        cold = self._pick()
        kin = [one for one in self._texts.branches if one.branch.family == cold.branch.family]
        for one in (cold, self._draw.choice(kin), cold):
            reply = self._texts.ask(self._client, one, store=self._draw.choice(STORES))
            if reply.tokens != one.tokens:
                found = f"{reply.usage.cached_tokens} of {reply.usage.prompt_tokens} tokens were kept"
                self._book.faults.append(f"under load a text differs from the cold one: {found}")

    def _leave(self) -> None:
        cold, seen = self._pick(), 0
        most = self._draw.randrange(12)
        options = {**common(self._texts.pack), **cold.branch.options}
        stream = self._client.generate(tokens=list(cold.branch.tokens), **options)
        for event in stream:
            seen += isinstance(event, Text)
            if seen > most:
                break
        stream.close()

    def _turn(self) -> None:
        name, session = self._session()
        if session.turns == len(session.talk.answers):
            self._remove(name, session)
            return
        self._book.touched.add(name)
        talk, turn = session.talk.talk, session.turns
        options = {**common(self._texts.pack), **talk.options}
        reply = self._client.complete(talk.questions[turn], session=name, **options)
        if reply.tokens != session.talk.answers[turn]:
            self._book.faults.append(f"turn {turn + 1} of a session differs from the cold one")
        if reply.session is None or not reply.session.kept or reply.session.turn != turn + 1:
            self._book.faults.append(f"turn {turn + 1} was not kept: {reply.session}")
        session.turns += 1

    def _session(self) -> tuple[str, Conversation]:
        """One of this client's and this model's that is not over, or a new one."""
        mine = f"{self._texts.pack.name}-{self._number}-"
        open_ones = [
            (name, one)
            for name, one in self._book.sessions.items()
            if name.startswith(mine)
            and not one.removing
            and (self._removes or one.turns < len(one.talk.answers))
        ]
        if open_ones and self._draw.random() < 0.8:
            return self._draw.choice(open_ones)
        name = f"{mine}{sum(known.startswith(mine) for known in self._book.sessions)}"
        talk = self._draw.choice(self._texts.talks)
        return name, self._book.sessions.setdefault(name, Conversation(talk, self._texts))

    def _remove(self, name: str, session: Conversation) -> None:
        session.removing = True
        self._book.touched.add(name)
        try:
            self._client.remove_session(name)
        except NotFound:
            self._book.faults.append("a session that was acknowledged is not there to be removed")
        session.removed = True

    def _verify(self) -> None:
        if bad := self._client.cache_verify().bad:
            self._book.faults.append(f"under load {bad} blocks do not verify")

    def _pick(self) -> Cold:
        return self._draw.choice(self._texts.branches)


def start_load(
    socket: Path, texts: Texts, book: Book, clients: int, seed: str, over: threading.Event, *, removes: bool
) -> list[threading.Thread]:
    """So many clients, each on a thread of its own."""
    threads = []
    for number in range(clients):
        draw = random.Random(f"{seed} {number}")
        client = LoadClient(socket, texts, book, number, draw, removes=removes)
        threads.append(threading.Thread(target=client.live, args=(over,)))
        threads[-1].start()
    return threads
