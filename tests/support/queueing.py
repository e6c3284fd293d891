"""Requests that wait in a queue of their own, for tests of its order; nothing is decoded."""

from __future__ import annotations

from dataclasses import dataclass

from mtplxd.engine.scheduling.queue import FairQueue


@dataclass(frozen=True)
class Asked:
    """A waiting request; `size` is what it takes of the memory in these tests."""

    id: str
    client: str
    priority: str = "interactive"
    deadline: float | None = None
    size: int = 1


def any_fits(_: Asked) -> bool:
    return True


def queue_of(*clients: str, limit: int = 1000) -> FairQueue[Asked]:
    queue: FairQueue[Asked] = FairQueue(limit)
    for place, client in enumerate(clients):
        queue.add(Asked(f"{client}{place}", client), 0.0)
    return queue


def drained(queue: FairQueue[Asked], work: float = 0.0) -> list[str]:
    """Ids in the order they start, one in service at a time and each charged the same."""
    taken = []
    while (request := queue.take(any_fits, 0.0)) is not None:
        queue.charge(request.client, work)
        queue.done(request.id)
        taken.append(request.id)
    return taken


def drained_some(queue: FairQueue[Asked], count: int, work: float) -> list[str]:
    """As `drained`, the first so many."""
    taken = []
    for _ in range(count):
        request = queue.take(any_fits, 0.0)
        assert request is not None
        queue.charge(request.client, work)
        queue.done(request.id)
        taken.append(request.id)
    return taken
