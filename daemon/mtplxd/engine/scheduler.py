"""Whose request is decoded next. Pure policy over waiting requests: fair between clients, then by arrival."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """What the scheduler looks at."""

    @property
    def id(self) -> str:
        """Names the request."""

    @property
    def client(self) -> str:
        """Names who asked."""


W = TypeVar("W", bound=Waiting)


class FairQueue(Generic[W]):
    """Clients take turns; within a client, first come first served. A client's turn ends when one request is taken."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lanes: OrderedDict[str, deque[W]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def __iter__(self) -> Iterator[W]:
        """In the order they would be taken if nobody else came."""
        lanes = [deque(lane) for lane in self._lanes.values()]
        while lanes:
            lane = lanes.pop(0)
            yield lane.popleft()
            if lane:
                lanes.append(lane)

    @property
    def empty(self) -> bool:
        """Whether nobody waits; one look at a dict, safe beside a thread that adds."""
        return not self._lanes

    @property
    def full(self) -> bool:
        """Whether another request must be refused."""
        return len(self) >= self.limit

    def add(self, request: W) -> None:
        """Puts a request at the end of its client's lane."""
        self._lanes.setdefault(request.client, deque()).append(request)

    def take(self) -> W | None:
        """The next request; its client goes to the end of the line."""
        if not self._lanes:
            return None
        client, lane = next(iter(self._lanes.items()))
        request = lane.popleft()
        del self._lanes[client]
        if lane:
            self._lanes[client] = lane
        return request

    def remove(self, request_id: str) -> W | None:
        """Takes a request out of the line."""
        for client, lane in self._lanes.items():
            for request in lane:
                if request.id == request_id:
                    lane.remove(request)
                    if not lane:
                        del self._lanes[client]
                    return request
        return None
