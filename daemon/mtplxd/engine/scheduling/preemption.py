"""Whom to set aside when memory runs short or somebody waits behind background rows, and who comes back first.

Pure policy over views of rows. Taking a row's state out, and putting it back, is done elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtplxd.engine.scheduling.admission import HEADROOM, NOTHING, Admit, Kept, admit
from mtplxd.engine.scheduling.footprint import Held, RowHold, bytes_of

PROGRESS = 32
"""Tokens a row that was owed its place makes before it may be asked to give it up again."""
ASIDE_S = 10.0
"""A background row that was set aside goes before waiting interactive ones after so long."""


@dataclass(frozen=True, slots=True)
class RowView:
    """A row in service. `since` is when it was submitted; `made` counts tokens since it came in, or came back.

    `owed`: it came back after being set aside, or came in by background's own turn.
    """

    hold: RowHold
    since: float
    background: bool = False
    owed: bool = False
    made: int = 0

    @property
    def safe(self) -> bool:
        """Whether it was given its place for a while that is not over."""
        return self.owed and self.made < PROGRESS


@dataclass(frozen=True, slots=True)
class Aside:
    """A row to set aside. `copy`: its positions are kept on the host; else they are computed again."""

    id: str
    copy: bool


@dataclass(frozen=True, slots=True)
class Relief:
    """What to give up, in this order: bytes of what is kept, then rows' places. `hopeless` is a row that not even
    the whole of the memory can hold any longer: it has to end before anything else can be said."""

    free: Kept = NOTHING
    aside: tuple[Aside, ...] = ()
    hopeless: str = ""


@dataclass(frozen=True, slots=True)
class AsideView:
    """A row that was set aside: when it was submitted, and since when it is out."""

    id: str
    since: float
    out_since: float
    background: bool = False


def make_room(
    rows: Sequence[RowView],
    budget: int,
    kept: Kept = NOTHING,
    more: int = 1,
    held: Mapping[str, Held] | None = None,
) -> Relief:
    """What must go so that every row can have `more` positions; nothing where all of it fits.

    Snapshots go before copies, copies before rows: a stream that runs is worth more than one that waits. Then
    background before interactive, those who came last first; the last row is never set aside.
    """
    left, victims = list(rows), list[RowView]()
    for row in sorted(rows, key=_worth):
        if len(left) <= 1 or _bytes(left, more, held) <= budget:
            break
        left.remove(row)
        victims.append(row)
    if left and _bytes(left, more, held) > budget:
        return Relief(hopeless=left[0].hold.id)
    for row in reversed([*victims]):  # one that went may have made another's going needless
        if _bytes([*left, row], more, held) <= budget:
            left.append(row)
            victims.remove(row)
    free = kept.to_free(budget - _bytes(left, more, held))
    return Relief(free, _set_aside(victims, budget - _bytes(left, HEADROOM, held) - kept.less(free)))


def make_way(
    coming: RowHold,
    rows: Sequence[RowView],
    max_rows: int,
    budget: int,
    kept: Kept = NOTHING,
    held: Mapping[str, Held] | None = None,
) -> Relief | None:
    """Which background rows to set aside so that an interactive row can come in; None where that is of no use.

    Of those that keep to their place yet none is asked, nor is anybody where the row would have room anyway.
    """
    left, victims = list(rows), list[RowView]()
    for row in sorted((row for row in rows if row.background and not row.safe), key=_worth):
        if _lets_in(coming, left, max_rows, budget, kept, held):
            break
        left.remove(row)
        victims.append(row)
    if not victims or not _lets_in(coming, left, max_rows, budget, NOTHING, held):
        return None
    spare = budget - bytes_of([*(row.hold for row in left), coming], HEADROOM, held)
    free = kept.to_free(spare)
    return Relief(free, _set_aside(victims, spare - kept.less(free)))


def next_back(aside: Sequence[AsideView], interactive_waits: bool, now: float) -> AsideView | None:
    """Who comes back first, once there is room: interactive before background, then by arrival.

    Nobody, where a waiting interactive request goes before: a background row lets it, but not for ever.
    """
    ready = [
        row for row in aside if not row.background or not interactive_waits or now - row.out_since >= ASIDE_S
    ]
    return min(ready, key=_arrival, default=None)


def _arrival(row: AsideView) -> tuple[bool, float]:
    return row.background, row.since


def _worth(row: RowView) -> tuple[bool, bool, float]:
    """Whose place goes first, lowest first."""
    return row.safe, not row.background, -row.since


def _lets_in(
    coming: RowHold,
    rows: Sequence[RowView],
    max_rows: int,
    budget: int,
    kept: Kept,
    held: Mapping[str, Held] | None,
) -> bool:
    verdict = admit(coming, [row.hold for row in rows], budget, kept, held)
    return len(rows) < max_rows and isinstance(verdict, Admit)


def _bytes(rows: Sequence[RowView], more: int, held: Mapping[str, Held] | None) -> int:
    return bytes_of([row.hold for row in rows], more, held)


def _set_aside(victims: Sequence[RowView], spare: int) -> tuple[Aside, ...]:
    """Copies as far as there is room beside the rows that go on; who came first is copied first."""
    copied = set()
    for row in sorted(victims, key=lambda row: row.since):
        size = row.hold.footprint.bytes(1, row.hold.length)
        if size <= spare:
            spare -= size
            copied.add(row.hold.id)
    return tuple(Aside(row.hold.id, row.hold.id in copied) for row in victims)
