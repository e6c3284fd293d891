"""The soak's clients: each does one thing after another to the daemon and notes how it ended. It judges no text."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import grpc
from crowd import Ask, Heard, Stage, listen, name_of
from mixed_asks import Mixed
from mtplx_client import AsyncClient
from mtplx_client.errors import MtplxError
from mtplx_client.generation import generate_request
from mtplx_proto.v1 import generation_pb2_grpc
from soak_fates import (
    BAD,
    BURST,
    BURST_SIZE,
    CANCEL,
    COMPLETE,
    DEADLINE,
    DEAF,
    DEAF_TOKENS,
    DONE,
    HANG_UP,
    LEAVE,
    SEVERAL,
    TWICE,
    Fate,
    draw,
)


@dataclass(frozen=True)
class Record:
    """How one request ended; `whole` says that its text is all there."""

    kind: str
    at: int
    tokens: tuple[int, ...]
    outcome: str
    whole: bool
    choice: int = 0
    right: bool = True


@dataclass(frozen=True)
class Cancelled:
    """Rounds that a cancelled row still got, and as many as may land between the look at it and the cancel."""

    rounds: int
    allowed: int


@dataclass
class Book:
    """What all clients noted."""

    records: list[Record] = field(default_factory=list)
    cancelled: list[Cancelled] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class SoakClient:
    """One client with a connection of its own, which it loses and renews at times."""

    def __init__(self, stage: Stage, asks: list[Mixed], book: Book, rng: random.Random) -> None:
        self._stage, self._asks, self._book, self._rng = stage, asks, book, rng
        self._client = stage.client()
        self._ways: dict[str, Callable[[Fate], Coroutine[Any, Any, None]]] = {
            COMPLETE: self._complete,
            LEAVE: self._leave,
            HANG_UP: self._hang_up,
            CANCEL: self._cancel,
            DEADLINE: self._deadline,
            SEVERAL: self._several,
            TWICE: self._twice,
            DEAF: self._deaf,
            BAD: self._complete,
            BURST: self._burst,
        }

    async def live(self, over: Callable[[], bool]) -> None:
        """Does one thing after another until it is over."""
        try:
            while not over():
                fate = draw(self._rng, len(self._asks))
                try:
                    await self._ways[fate.kind](fate)
                except Exception as error:
                    # The edge of a client: what it met is a finding, and the others go on.
                    self._book.faults.append(f"{fate.kind}: {type(error).__name__}: {error}")
        finally:
            await self._client.close()

    def _ask(self, fate: Fate) -> Ask:
        mixed = self._asks[fate.at]
        return self._stage.ask(mixed.prompt, **{**mixed.options, **fate.options})

    def _note(self, fate: Fate, heard: Heard) -> None:
        self._put(fate, tuple(heard.tokens), heard.outcome, 0)

    def _put(self, fate: Fate, tokens: tuple[int, ...], outcome: str, choice: int) -> None:
        whole, right = outcome in DONE, outcome in fate.right_ends
        self._book.records.append(Record(fate.kind, fate.at, tokens, outcome, whole, choice, right))

    async def _complete(self, fate: Fate) -> None:
        self._note(fate, await listen(self._client, self._ask(fate)))

    async def _leave(self, fate: Fate) -> None:
        def enough(heard: Heard) -> bool:
            return len(heard.times) > fate.events

        self._note(fate, await listen(self._client, self._ask(fate), on_text=enough))

    async def _hang_up(self, fate: Fate) -> None:
        reached = asyncio.Event()

        def enough(heard: Heard) -> None:
            if len(heard.times) > fate.events:
                reached.set()

        stream = asyncio.create_task(listen(self._client, self._ask(fate), on_text=enough))
        waiting = asyncio.create_task(reached.wait())
        await asyncio.wait([stream, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        lost, self._client = self._client, self._stage.client()
        await lost.close()
        done, _ = await asyncio.wait([stream], timeout=5)
        if not done or stream.cancelled():
            stream.cancel()
            return
        self._note(fate, stream.result())

    async def _cancel(self, fate: Fate) -> None:
        async with self._stage.client() as own:
            seen: list[tuple[int, float, float]] = []
            ending: list[asyncio.Task[None]] = []

            async def end(heard: Heard) -> None:
                begin = time.perf_counter()
                mine = [one for one in (await own.status()).in_flight if one.client == name_of(own)]
                if mine and await own.cancel(mine[0].id):
                    round_s = median(heard.gaps) if heard.gaps else 1.0
                    seen.append((mine[0].rounds, time.perf_counter() - begin, round_s))

            def enough(heard: Heard) -> None:
                if len(heard.times) > fate.events and not ending:
                    ending.append(asyncio.create_task(end(heard)))

            heard = await listen(own, self._ask(fate), on_text=enough)
            await asyncio.gather(*ending)
        self._note(fate, heard)
        if seen and heard.final and heard.outcome == "cancelled":
            [(before, took_s, round_s)] = seen
            allowed = 2 + int(took_s / round_s)
            self._book.cancelled.append(Cancelled(heard.final.stats.rounds - before, allowed))

    async def _deadline(self, fate: Fate) -> None:
        self._note(fate, await listen(self._client, self._ask(fate), timeout=fate.seconds))

    async def _several(self, fate: Fate) -> None:
        ask = self._ask(fate)
        try:
            reply = await self._client.complete(ask.prompt, **ask.options)
        except MtplxError as error:
            self._put(fate, (), type(error).__name__, 0)
            return
        for choice, answer in enumerate(reply.choices):
            self._put(fate, tuple(answer.tokens), answer.finish_reason, choice)
        if len(reply.choices) != fate.options["n"]:
            self._book.faults.append(f"{fate.options['n']} answers asked for, {len(reply.choices)} given")

    async def _twice(self, fate: Fate) -> None:
        ask = self._ask(fate)
        for heard in await asyncio.gather(*(listen(self._client, ask) for _ in range(2))):
            self._note(fate, heard)

    async def _burst(self, fate: Fate) -> None:
        """Many tiny requests at once."""
        ask = self._stage.ask("Hello", temperature=0.0, max_tokens=1)
        for heard in await asyncio.gather(*(listen(self._client, ask) for _ in range(BURST_SIZE))):
            if heard.outcome not in fate.right_ends:
                self._book.faults.append(f"a tiny request ended as {heard.outcome}")

    async def _deaf(self, fate: Fate) -> None:
        """Asks for much and reads nothing of it."""
        ask = self._ask(fate)
        options = {**ask.options, "max_tokens": DEAF_TOKENS}
        request = generate_request(ask.prompt, options)  # type: ignore[arg-type]
        async with grpc.aio.insecure_channel(f"unix:{self._stage.daemon.socket}") as channel:
            call = generation_pb2_grpc.GenerationStub(channel).Generate(request)
            await asyncio.sleep(fate.seconds)
            call.cancel()


async def keep_watch(client: AsyncClient, into: list[dict[str, float]], every_s: float) -> None:
    """Notes the daemon's memory and rows until it is cancelled."""
    begin = time.perf_counter()
    while True:
        status = await client.status()
        into.append(
            {
                "s": time.perf_counter() - begin,
                "rss": status.memory.used,
                "rows": status.engine.rows,
                "in_flight": len(status.in_flight),
                "prefixes": status.engine.prefixes.bytes,
                "contexts": status.engine.contexts,
                "waiting": (await client.cache_stats()).waiting,
            }
        )
        await asyncio.sleep(every_s)
