"""What the controller is asked and told: plain values, one row or one round each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DraftRoom:
    """A row of the round to come: at `most` so many drafts, `fixed` of them where its request says so, None = auto."""

    key: str
    most: int
    fixed: int | None = None


@dataclass(frozen=True, slots=True)
class RowSeen:
    """What became of a row's drafts: how many there were, were decided before its text ended, were accepted."""

    key: str
    drafted: int
    decided: int
    accepted: int


@dataclass(frozen=True, slots=True)
class RoundSeen:
    """A round that was played. `seconds` is None where it did not follow warm and at once on the one before.

    Rounds whose forwards have another form than the usual (of one fixed shape) say which, and have costs of their own.
    """

    rows: tuple[RowSeen, ...]
    seconds: float | None
    form: str = ""

    @property
    def width(self) -> int:
        """Drafts of the row with most: what the forwards of all are padded to."""
        return max((row.drafted for row in self.rows), default=0)
