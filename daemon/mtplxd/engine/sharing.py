"""Which prompts should wait for another one that begins as they do, instead of reading the same tokens beside it.

Decided anew whenever asked, from what is in service then: who waits for one that was cancelled waits no more, and
nobody ever waits for one that came later, so that the first of any that wait for each other goes on. Reads no prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt in service. Only those of one `group` (a model and its partition) can share.

    `done` are the positions it has read, of one that has not `begun` those that it would get back if it did. What a
    plain row reads is of no use to one that `drafts`. `whole` rows go on behind whole blocks only. `keeps` is how far
    what it reads is kept for others, None for as far as it goes.
    """

    id: str
    group: str
    prompt: Sequence[int]
    done: int
    begun: bool
    drafts: bool = True
    whole: bool = False
    keeps: int | None = None

    @property
    def total(self) -> int:
        """Positions to read: all but the last token's."""
        return len(self.prompt) - 1


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until the one with the id `leader` has read `until` positions."""

    leader: str
    until: int


def whom_to_wait_for(asked: Sequence[Asked], block: int) -> dict[str, Wait]:
    """Who of those in service, in the order they came, waits for which earlier one; blocks have `block` positions."""
    waits: dict[str, Wait] = {}
    for place, one in enumerate(asked):
        if not one.begun and (found := _best(one, asked[:place], block)):
            waits[one.id] = found
    return waits


def common_length(one: Sequence[int], other: Sequence[int], most: int) -> int:
    """How many tokens two sequences begin with in common, at most `most`."""
    low, high = 0, min(most, len(one), len(other))
    step = 1
    while low < high and one[low : low + step] == other[low : low + step]:
        low, step = min(low + step, high), 2 * step
    high = min(high, low + step)
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _best(one: Asked, earlier: Sequence[Asked], block: int) -> Wait | None:
    best: Wait | None = None
    for leader in earlier:
        if leader.group != one.group or (one.drafts and not leader.drafts):
            continue
        until = _usable(one, leader, block)
        enough = 1 if until == one.total else block  # a forward of few positions costs as one of many
        if until - one.done >= enough and leader.done < until and (best is None or until > best.until):
            best = Wait(leader.id, until)
    return best


def _usable(one: Asked, leader: Asked, block: int) -> int:
    """Positions that one gets back once the other has read as much: whole blocks, or all that the other reads."""
    common = common_length(one.prompt, leader.prompt, min(one.total, leader.total))
    until = common if common == leader.total and not one.whole else common // block * block
    if leader.keeps is not None and until > leader.keeps:
        until = leader.keeps
    return until
