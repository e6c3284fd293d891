"""Many clients of one daemon, from one process: what each asked, what it heard and when. It judges nothing.

Every client has a connection and a name of its own, so the daemon tells them apart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from harness import Sample
from mtplx_client import AsyncClient, Client
from mtplx_client.errors import MtplxError
from mtplx_client.events import Final, Progress, Text
from support.daemon_process import DaemonProcess, running_daemon, short_folder

T = TypeVar("T")


@dataclass(frozen=True)
class Ask:
    """One request: its words, and the client's options for it."""

    prompt: str | None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Heard:
    """What came of a request. Times are seconds on the performance clock; `times` has one an event with tokens."""

    asked: float
    times: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    final: Final | None = None
    error: MtplxError | None = None
    ended: float = 0.0

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.times[0] - self.asked

    @property
    def gaps(self) -> list[float]:
        """Seconds between neighbouring events."""
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]

    def gaps_between(self, begin: float, end: float) -> list[float]:
        """The gaps that lie in a span of time, or reach into it."""
        pairs = zip(self.times, self.times[1:], strict=False)
        return [after - before for before, after in pairs if after > begin and before < end]

    @property
    def outcome(self) -> str:
        """The finish reason, or the name of what was raised; empty where this side left."""
        if self.error is not None:
            return type(self.error).__name__
        return self.final.finish_reason if self.final else ""


Hook = Callable[[Heard], bool | None]
"""Called after each event that brought tokens; true ends the request from this side."""


async def listen(
    client: AsyncClient,
    ask: Ask,
    *,
    on_text: Hook = lambda _: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    timeout: float | None = None,
) -> Heard:
    """Asks and listens to the end; what the daemon refuses is in `error`, never raised."""
    heard = Heard(time.perf_counter())
    try:
        async with aclosing(client.generate(ask.prompt, timeout=timeout, **ask.options)) as events:
            async for event in events:
                if isinstance(event, Text) and event.tokens:
                    heard.times.append(time.perf_counter())
                    heard.tokens.extend(event.tokens)
                    if on_text(heard):
                        break
                elif isinstance(event, Progress):
                    on_progress(event)
                elif isinstance(event, Final):
                    heard.final = event
    except MtplxError as error:
        heard.error = error
    heard.ended = time.perf_counter()
    return heard


class Stage:
    """A daemon with one model in memory, and a loop on which clients speak to it."""

    def __init__(self, daemon: DaemonProcess, model: Path, runner: asyncio.Runner) -> None:
        self.daemon, self.model = daemon, str(model)
        self._runner = runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of asynchronous work; every piece of a command runs on the same loop."""
        return self._runner.run(work)

    def ask(self, prompt: str | None, **options: Any) -> Ask:
        """A request for this model."""
        return Ask(prompt, {"model": self.model, "force": True, **options})

    def client(self, timeout: float | None = None) -> AsyncClient:
        """A client with a name of its own."""
        return AsyncClient(socket=self.daemon.socket, timeout=timeout)

    @asynccontextmanager
    async def clients(self, count: int) -> Any:
        """So many clients."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.client()) for _ in range(count)]

    def alone(self, ask: Ask) -> Heard:
        """What one client hears while nobody else asks."""

        async def work() -> Heard:
            async with self.client() as client:
                return await listen(client, ask)

        return self.run(work())

    def together(self, asks: Sequence[Ask]) -> list[Heard]:
        """What each of as many clients hears when all ask at once."""

        async def work() -> list[Heard]:
            async with self.clients(len(asks)) as clients:
                pairs = zip(clients, asks, strict=True)
                return list(await asyncio.gather(*(listen(client, ask) for client, ask in pairs)))

        return self.run(work())


@contextmanager
def staged(model: Path, *arguments: str, **environment: str) -> Iterator[Stage]:
    """A daemon of its own on an empty home, with the pack loaded."""
    with (
        short_folder() as home,
        running_daemon(home, *arguments, **environment) as daemon,
        asyncio.Runner() as runner,
    ):
        with Client(socket=daemon.socket) as client:
            client.load(str(model), force=True)
        yield Stage(daemon, model, runner)


def name_of(client: AsyncClient) -> str:
    """What status calls a client."""
    return client._peer.client_id


def note(heard: Heard) -> Sample:
    """What a text is compared by."""
    return {"tokens": heard.tokens, "outcome": heard.outcome}


def check(heard: Heard) -> Heard:
    """The same, if it ended as it should. Raises what was raised, or an error naming how it ended."""
    if heard.error is not None:
        raise heard.error
    if heard.final is None or heard.final.finish_reason == "error":
        said = heard.final.message if heard.final else ""
        raise RuntimeError(f"an answer ended as {heard.outcome or 'nothing'}: {said}")
    return heard


def middle(values: Sequence[float]) -> float:
    """The median, rounded to what a timing can say."""
    return round(median(values), 4)
