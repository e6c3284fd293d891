"""How much work each client was given while others waited: the virtual time that fairness between clients rests on.

It knows clients by name and work by number; requests, classes and order are the queue's.
"""

from __future__ import annotations

DEPOSIT = 256.0
"""Work a client is taken to have had already for each of its requests in service, until that one ends."""
REMEMBERED = 1024
"""Most clients without a request whose debt is kept."""


class Accounts:
    """Virtual time of each client: the work it was charged, from where a newcomer of its day began.

    Whoever has the least comes next. A newcomer, and one that comes back without debt, begins at the present time,
    which work charged to anybody moves on by its share: there is no saving up, and no starving behind newcomers.
    Work that was done while nobody waited is owed to nobody.
    """

    def __init__(self, deposit: float = DEPOSIT, remembered: int = REMEMBERED) -> None:
        self._deposit, self._remembered = deposit, remembered
        self._had: dict[str, float] = {}
        self._waiting: dict[str, int] = {}
        self._serving: dict[str, int] = {}
        self._present = 0.0

    def __len__(self) -> int:
        """Clients there is anything known of."""
        return len(self._had.keys() | self._waiting.keys() | self._serving.keys())

    @property
    def waiting(self) -> int:
        """Clients that wait."""
        return len(self._waiting)

    def wait(self, client: str) -> None:
        """One more request of this client waits."""
        if client not in self._waiting:
            self._had[client] = max(self._had.get(client, self._present), self._present)
        self._waiting[client] = self._waiting.get(client, 0) + 1

    def unwait(self, client: str) -> None:
        """One fewer waits. Once nobody does, nobody owes anything."""
        _less(self._waiting, client)
        if self._waiting:
            self._present = max(self._present, min(self._had[name] for name in self._waiting))
            self._forget()
        else:
            self._had.clear()
            self._present = 0.0

    def serve(self, client: str) -> None:
        """One more request of this client is in service."""
        self._serving[client] = self._serving.get(client, 0) + 1

    def unserve(self, client: str) -> None:
        """One fewer is."""
        _less(self._serving, client)
        self._forget()

    def charge(self, client: str, work: float) -> None:
        """Work was done for a client."""
        if not self._waiting:
            return
        self._had[client] = self._had.get(client, self._present) + work
        self._present += work / len(self._waiting.keys() | self._serving.keys() | {client})
        self._forget()

    def rank(self, client: str, more: int = 0) -> float:
        """Who has the lowest comes next; `more` are requests to count as in service beside those that are."""
        return self._had.get(client, self._present) + self._deposit * (self._serving.get(client, 0) + more)

    def _forget(self) -> None:
        """Keeps idle clients only while they owe, and not too many: the least debts go first."""
        if len(self._had) <= self._remembered:
            return
        idle = self._had.keys() - self._waiting.keys() - self._serving.keys()
        for client in [client for client in idle if self._had[client] <= self._present]:
            del self._had[client]
            idle.remove(client)
        for client in sorted(idle, key=lambda name: self._had[name])[: max(0, len(idle) - self._remembered)]:
            del self._had[client]


def _less(counts: dict[str, int], client: str) -> None:
    if counts[client] == 1:
        del counts[client]
    else:
        counts[client] -= 1
