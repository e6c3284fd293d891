"""Which waiting request starts next: fair between clients by the work they were given, interactive before background.

Pure policy over what waits. Whether a request fits, when it is asked and what became of it are told from outside.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Generic, NoReturn, Protocol, TypeVar

from mtplxd.engine.scheduling.accounts import Accounts
from mtplxd.errors import InvalidArgument, ResourceExhausted

INTERACTIVE, BACKGROUND = "interactive", "background"
OVERTAKES = 8
"""How often a request that does not fit is overtaken before those behind it wait with it."""
PATIENCE_S, AHEAD = 10.0, 4
"""Background gets a turn of its own after so many seconds without one and so many interactive requests before it."""
LOOK = 32
"""Requests of a class that are asked whether they fit, at most, for one that starts."""
RETRY_S = (1.0, 60.0)
"""Least and most seconds after which a refused request may be sent again."""


class Waiting(Protocol):
    """What the queue looks at. `deadline` is a time on the caller's clock."""

    @property
    def id(self) -> str: ...

    @property
    def client(self) -> str: ...

    @property
    def priority(self) -> str: ...

    @property
    def deadline(self) -> float | None: ...


W = TypeVar("W", bound=Waiting)


@dataclass(slots=True)
class _Place(Generic[W]):
    """A request in the line: which it was in all, since when, how many that came later started before it."""

    item: W
    number: int
    since: float
    passed: int = 0


class _Lanes(Generic[W]):
    """The requests of one class, first come first served within a client."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._lanes: dict[str, deque[_Place[W]]] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, place: _Place[W]) -> None:
        self._lanes.setdefault(place.item.client, deque()).append(place)

    def remove(self, place: _Place[W]) -> None:
        lane = self._lanes[place.item.client]
        lane.remove(place)
        if not lane:
            del self._lanes[place.item.client]

    def oldest(self) -> float:
        """Since when the one that came first waits."""
        return min(lane[0].since for lane in self._lanes.values())

    def in_order(self) -> Iterator[_Place[W]]:
        """As they would start if nobody else came and nothing were charged."""
        heads = [
            (self._accounts.rank(client), lane[0].number, client, 0) for client, lane in self._lanes.items()
        ]
        heapq.heapify(heads)
        while heads:
            _, _, client, at = heapq.heappop(heads)
            lane = self._lanes[client]
            if at + 1 < len(lane):
                rank = self._accounts.rank(client, more=at + 1)
                heapq.heappush(heads, (rank, lane[at + 1].number, client, at + 1))
            yield lane[at]


class FairQueue(Generic[W]):
    """What waits to be started, within bounds. Times are seconds on one clock.

    A request that `take` gave is in service until `done`; the work done for its client is told by `charge`.
    """

    def __init__(self, limit: int, client_limit: int | None = None) -> None:
        self.limit, self.client_limit = limit, limit if client_limit is None else client_limit
        self.accounts = Accounts()
        self._classes: dict[bool, _Lanes[W]] = {
            background: _Lanes(self.accounts) for background in (False, True)
        }
        self._places: dict[str, _Place[W]] = {}
        self._of_client: dict[str, int] = {}
        self._serving: dict[str, str] = {}
        self._owed: set[str] = set()
        self._numbers = count()
        self._ahead, self._last_background = 0, float("-inf")
        self._pace: float | None = None
        self._last_take: float | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[W]:
        """In the order they would be taken if all fitted and nobody else came, but for background's own turns."""
        for background in (False, True):
            yield from (place.item for place in self._classes[background].in_order())

    @property
    def empty(self) -> bool:
        """Whether nobody waits; one look at a dict, safe beside a thread that adds."""
        return not self._places

    def check(self, item: W) -> None:
        """Raises what `add` would raise, and adds nothing."""
        if item.id in self._places or item.id in self._serving:
            raise InvalidArgument(
                "a request with this id is in flight", item.id, "give each an id of its own"
            )
        own = self._of_client.get(item.client, 0)
        if own >= self.client_limit:
            self._refuse("too many requests of one client wait", f"{own} of {self.client_limit}", own=True)
        if len(self) >= self.limit:
            self._refuse("the queue is full", f"{len(self)} of {self.limit}", own=False)

    def add(self, item: W, now: float) -> None:
        """Puts a request at the end of its client's line.

        Raises ResourceExhausted where the whole line or its client's is full, InvalidArgument for an id in flight.
        """
        self.check(item)
        self.accounts.wait(item.client)
        place = _Place(item, next(self._numbers), now)
        self._places[item.id] = place
        self._of_client[item.client] = self._of_client.get(item.client, 0) + 1
        if _is_background(item) and not self._classes[True]:
            self._ahead = 0
        self._classes[_is_background(item)].add(place)

    def take(self, fits: Callable[[W], bool], now: float) -> W | None:
        """The next request that may start; None where none does. Call it while there is a place to serve one in.

        One that does not fit lets those behind it start, but only so often; then it is waited for, by background too.
        """
        due = self._background_due(now)
        passed: list[_Place[W]] = []
        for place in self._candidates(first=due):
            if fits(place.item):
                for earlier in passed:
                    earlier.passed += 1
                if due and _is_background(place.item):
                    self._owed.add(place.item.id)
                self._start(place, now)
                return place.item
            if place.passed >= OVERTAKES:
                return None
            passed.append(place)
        return None

    def charge(self, client: str, work: float) -> None:
        """Work was done for a request of this client, in one unit for all: positions prefilled and tokens made."""
        self.accounts.charge(client, work)

    def done(self, request_id: str) -> None:
        """A request that was taken ended; nothing where it was not taken, or ended already."""
        client = self._serving.pop(request_id, None)
        self._owed.discard(request_id)
        if client is not None:
            self.accounts.unserve(client)

    def owed(self, request_id: str) -> bool:
        """Whether a request in service is a background one that started in background's own turn."""
        return request_id in self._owed

    def find(self, request_id: str) -> W | None:
        """A waiting request."""
        place = self._places.get(request_id)
        return place.item if place else None

    def remove(self, request_id: str) -> W | None:
        """Takes a request out of the line; it is not served."""
        place = self._places.get(request_id)
        return self._leave(place) if place else None

    def expire(self, now: float) -> list[W]:
        """Takes those out whose deadline has passed."""
        return [self._leave(place) for place in [*self._places.values()] if _is_past(place.item, now)]

    def _candidates(self, first: bool) -> Iterable[_Place[W]]:
        for background in (first, not first):
            yield from islice(self._classes[background].in_order(), LOOK)

    def _background_due(self, now: float) -> bool:
        lanes = self._classes[True]
        if not lanes or self._ahead < AHEAD:
            return False
        return now - max(self._last_background, lanes.oldest()) >= PATIENCE_S

    def _start(self, place: _Place[W], now: float) -> None:
        item = place.item
        if _is_background(item):
            self._ahead, self._last_background = 0, now
        elif self._classes[True]:
            self._ahead += 1
        self.accounts.serve(item.client)
        self._serving[item.id] = item.client
        self._leave(place)
        if self._last_take is not None:
            gap = now - self._last_take
            self._pace = gap if self._pace is None else self._pace + (gap - self._pace) / 8
        self._last_take = now if self._places else None

    def _leave(self, place: _Place[W]) -> W:
        item = place.item
        del self._places[item.id]
        self._classes[_is_background(item)].remove(place)
        self._of_client[item.client] -= 1
        if not self._of_client[item.client]:
            del self._of_client[item.client]
        self.accounts.unwait(item.client)
        return item

    def _refuse(self, what: str, value: str, *, own: bool) -> NoReturn:
        """A place comes free at the pace of starts; of a client's own, once in as many as there are clients."""
        least, most = RETRY_S
        after = (self._pace or least) * (self.accounts.waiting if own else 1)
        raise ResourceExhausted(
            what,
            f"{value} places taken",
            "let one of them end, then try again" if own else "try again in a moment",
            needed=1,
            available=0,
            retry_after_s=min(max(after, least), most),
        )


def _is_background(item: Waiting) -> bool:
    return item.priority == BACKGROUND


def _is_past(item: Waiting, now: float) -> bool:
    return item.deadline is not None and item.deadline <= now
