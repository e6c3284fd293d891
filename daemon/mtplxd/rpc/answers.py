"""One stream's answers: the requests that answer one prompt, their events on the way to one client, their end.

It numbers events by choice and ends once every choice has. What is asked of the engine is `generation`'s to settle.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtplxd.engine.depth import DepthController
from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Finished, Logprobs, Progress, Sink, Stats, Text
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.errors import Cancelled
from mtplxd.residency.entry import Lease
from mtplxd.rpc import messages
from mtplxd.rpc.bridge import Bridge
from mtplxd.rpc.conversing import Talk
from mtplxd.rpc.validate import MOST_CHOICES

if TYPE_CHECKING:  # the daemon serves before model libraries are imported
    from mtplxd.families.tokenizer import Tokenizer

UNREAD_LIMIT = 4096
"""Events a client may leave unread before its request is cancelled."""
TOO_SLOW = "the client left too many events unread: read faster, or ask for fewer tokens"


@dataclass(frozen=True)
class Plan:
    """What was settled before the engine got the requests; `samplers` has one a choice."""

    model: str
    samplers: tuple[SamplerSettings, ...]
    tokenizer: Tokenizer
    law_logprobs: bool
    load_s: float
    prompt_tokens: int


@dataclass(frozen=True)
class _Stalled:
    """The engine does not go on: what is left ends here."""

    message: str


def choice_ids(call_id: str, count: int) -> tuple[str, ...]:
    """The engine's ids of a call's choices; a single one has the call's own."""
    return (call_id,) if count == 1 else tuple(f"{call_id}/{choice}" for choice in range(count))


def cancel_call(engine: Engine, call_id: str, origin: str) -> bool:
    """Ends a call's requests, or the one choice that is named; False where nothing of it is in flight."""
    ids = (call_id, *choice_ids(call_id, MOST_CHOICES))
    found = [engine.cancel(one, origin) for one in ids]
    return any(found)


class Answers:
    """Made on the event loop, by one call. The engine hands events in from its own thread.

    `over_since` is when the engine was done with the last of them, on the monotonic clock.
    """

    def __init__(self, engine: Engine, call_id: str, count: int, unread_limit: int = UNREAD_LIMIT) -> None:
        self._engine = engine
        self.ids = choice_ids(call_id, count)
        self.over_since: float | None = None
        self._talk: Talk | None = None
        self._depths: object = None
        self._writing: asyncio.Task[None] | None = None
        self._given_up = False
        self._events: Bridge[tuple[int, Event | _Stalled]] = Bridge(
            unread_limit * count, lambda: self.cancel("client")
        )

    def submit(self, requests: Sequence[Request], lease: Lease, talk: Talk | None = None) -> None:
        """Hands all of them to the engine, or none. The lease lasts until the last has ended; a session's turn is
        kept before the client hears of its end, whether it listens or not.

        Raises what the engine raises.
        """

        def done() -> None:
            self.over_since = time.monotonic()
            lease.release()

        held = _Held(done, len(requests))
        self._talk, self._depths = talk, getattr(lease.model, "depths", None)
        for choice, request in enumerate(requests):
            try:
                sink = self._sink(choice, held)
                self._engine.submit(request, talk.listen(sink) if talk else sink)
            except BaseException:
                for sent in requests[:choice]:
                    self._engine.cancel(sent.id, "client")
                held.drop(len(requests) - choice)
                raise

    def cancel(self, origin: str) -> None:
        """Asks the engine to end what is still in flight."""
        for one in self.ids:
            self._engine.cancel(one, origin)

    def stall(self, message: str) -> None:
        """Ends the stream without the engine, which is told to end the rows when it goes on."""
        self._events.finish((0, _Stalled(message)))
        self.cancel("stall")

    def close(self) -> None:
        """The client is gone, or has had all."""
        self._events.close()

    def give_up(self) -> None:
        """Nobody reads it, and others need the place."""
        if self._writing is not None:
            self._given_up = self._writing.cancel()

    async def write(self, plan: Plan, context: Any) -> None:
        """Sends every event until each choice has its final one. Raises Cancelled where it was given up."""
        self._writing = asyncio.ensure_future(self._write(plan, context))
        try:
            await self._writing
        except asyncio.CancelledError:
            if self._given_up:
                raise Cancelled(
                    "the answer was left unread for too long", None, "read it as it comes"
                ) from None
            raise
        finally:
            self._writing.cancel()

    async def _write(self, plan: Plan, context: Any) -> None:
        made = [0] * len(self.ids)
        left = set(range(len(self.ids)))
        while left:
            choice, event = await self._events.get()
            if isinstance(event, _Stalled):
                for one in sorted(left):
                    end = _end_of_stall(plan, made[one], event.message)
                    await context.write(self._final(plan, one, end))
                return
            if choice not in left:
                continue
            if isinstance(event, Finished):
                left.remove(choice)
                await context.write(self._final(plan, choice, event))
                continue
            if isinstance(event, Text):
                made[choice] += len(event.tokens)
            await context.write(_message(plan, choice, event))

    def _sink(self, choice: int, held: _Held) -> Sink:
        def sink(event: Event) -> None:
            if isinstance(event, Finished):
                held.drop()
                self._events.finish((choice, event))
            else:
                self._events.put((choice, event))

        return sink

    def _final(self, plan: Plan, choice: int, end: Finished) -> Any:
        message = TOO_SLOW if self._events.overflowed else ""
        kept = self._talk.kept if self._talk else None
        final = messages.final_event(end, plan.samplers[choice], plan.model, plan.load_s, message, kept)
        final.choice = choice
        if isinstance(self._depths, DepthController) and (
            paying := messages.paying_message(self._depths.latest)
        ):
            final.final.stats.paying.CopyFrom(paying)
        return final


class _Held:
    """Gives something back once all who need it are done. Thread-safe."""

    def __init__(self, give_back: Callable[[], None], count: int) -> None:
        self._give_back, self._count = give_back, count
        self._lock = threading.Lock()

    def drop(self, count: int = 1) -> None:
        """So many are done."""
        with self._lock:
            self._count -= count
            last = self._count == 0
        if last:
            self._give_back()


def _message(plan: Plan, choice: int, event: Text | Logprobs | Progress) -> Any:
    if isinstance(event, Text):
        message = messages.text_event(event)
    elif isinstance(event, Logprobs):
        message = messages.logprobs_event(event, plan.tokenizer.token_bytes, plan.law_logprobs)
    else:
        message = messages.progress_event(event)
    message.choice = choice
    return message


def _end_of_stall(plan: Plan, made: int, message: str) -> Finished:
    return Finished("error", "stall", plan.prompt_tokens, 0, made, Stats(), message)
