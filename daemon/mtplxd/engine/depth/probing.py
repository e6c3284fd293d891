"""When a round tries a width that is not the best one known: how often, for how long, at what cost in all.

Pauses grow while tries change nothing; a change of mind shortens them. A look at acceptance is paid for by the rounds
rested before it, a new shape's seconds from a credit that fills with the rounds played by as many rows: for how long
there will be so many is not known, but it was for so long. Knows neither acceptance nor seconds: what a try loses is
an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_PAUSE, LONGEST_PAUSE = 6, 64
LONGEST_PLAIN_PAUSE = 16
"""While nothing is drafted nothing else shows that the text has changed."""
LOSS_SHARE = 0.012
"""Share of the rounds that tries may lose."""
NEW_SHARE = 0.012
"""Share of the rounds that were played by so many rows which the seconds of their new shapes may lose."""
CREDIT, MOST_CREDIT = 1.5, 2.0
"""Rounds they may lose before any was played, of the first rows ever met, and at most, however many were."""
NEWS_ROUNDS = 12
"""Most rounds that a try takes because its drafts are accepted."""


@dataclass(slots=True)
class Budget:
    """Rounds that the new shapes of a number of rows may still lose."""

    left: float = 0.0

    def fill(self) -> None:
        """A round was played by so many rows."""
        self.left = min(self.left + NEW_SHARE, MOST_CREDIT)

    def spend(self, lost: float) -> None:
        """A round of a try lost so much of a round's tokens."""
        self.left -= max(0.0, lost)


@dataclass(slots=True)
class Try:
    """Rounds at another width: `left` of them to come, `spent` so far. `lost` is what each is expected to lose, and
    `enough` the share of its last drafts that must be accepted for it to pay; `new` that its seconds are not known;
    `hit` that in some round it did.
    """

    width: int
    left: int
    lost: float
    enough: float
    new: bool = False
    spent: int = 0
    hit: bool = False

    def played(self, accepted: float) -> bool:
        """Notes a round and the share of last drafts accepted of those reached; False where the try is over.

        It goes on while that would pay.
        """
        self.spent += 1
        self.left -= 1
        self.hit = self.hit or accepted > self.enough
        if accepted > self.enough and self.left < 1 and self.spent < NEWS_ROUNDS:
            self.left = 1
        return self.left > 0


@dataclass(slots=True)
class Pauses:
    """Rounds between tries."""

    pause: float = FIRST_PAUSE
    since: float = 0.0
    credit: float = 0.0

    def over(self, *, plain: bool) -> bool:
        """Whether it is time for a try."""
        return self.since >= min(self.pause, LONGEST_PLAIN_PAUSE if plain else LONGEST_PAUSE)

    def pay(self, lost: float) -> bool:
        """Whether the rounds since the last try make up for what one loses."""
        return (self.since + self.credit) * LOSS_SHARE >= lost

    def rested(self) -> None:
        """A round that tried nothing."""
        self.since += 1

    def tried(self) -> None:
        """A try is over and changed nothing so far."""
        self.since = self.credit = 0.0
        self.pause = min(self.pause * 2, LONGEST_PAUSE)

    def heard(self) -> None:
        """A try showed what it was made for, but too briefly to change a mind: another one soon, whatever it loses."""
        self.since, self.pause, self.credit = 0.0, FIRST_PAUSE, LONGEST_PAUSE

    def changed(self) -> None:
        """Another width is the best now: what lies beyond it is news again."""
        self.pause = FIRST_PAUSE
