"""What is kept of prompts, in memory and on disk, as one: looked up, fetched, offered, and why something is not there.

Memory is asked first. On disk a block is two, the body's part and the head's, each under an identity of its own.
Payloads are opaque but for what they are good for; the disk's bytes are made and read by whoever has arrays.
One thread uses it; counts may be read from any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from mtplxd.store.blocks import JSON, BlockBytes, Kept, Offered, Tensor
from mtplxd.store.disk import EVICTED, QUARANTINED
from mtplxd.store.keys import Chain, identify, identify_body
from mtplxd.store.planner import Need, Plan, There, plan
from mtplxd.store.prefixes import Payload, PrefixCounts, PrefixIndex
from mtplxd.store.reader import Item, Job, Reader

BODY, HEAD = "body", "head"
PARTS = BODY, HEAD
NEW, DIVERGED, OTHER_MODEL, OTHER_LAYOUT = "new_prefix", "diverged", "other_model", "other_layout"
OTHER_HEAD, NO_HEAD, NO_STATE = "other_head", "head_missing", "state_missing"
BELOW = "below_minimum"
PARTITIONS = "free", "fixed 64"

P = TypeVar("P", bound=Payload)


class Disk(Protocol):
    """What is asked of `disk.DiskStore`."""

    def offer(self, offered: Offered) -> bool: ...

    def find(self, name: bytes) -> Kept | None: ...

    def grade(self, name: bytes) -> int | None: ...

    def follows(self, parent: bytes) -> bool: ...

    def touch(self, names: Iterable[bytes]) -> None: ...

    def tails(self, parent: bytes) -> list[Kept]: ...

    def roots(self, tokens: Sequence[int]) -> list[Kept]: ...

    def why(self, name: bytes) -> str: ...

    def read(self, name: bytes, tokens: Sequence[int]) -> BlockBytes | None: ...

    def holding(self, names: Iterable[bytes]) -> AbstractContextManager[Any]: ...

    def takes(self, nbytes: int) -> bool: ...

    @property
    def writable(self) -> bool: ...

    def bound_queue(self, nbytes: int) -> None: ...

    def discard(self, names: Iterable[bytes]) -> int: ...


@dataclass(slots=True)
class Chains:
    """A prompt's blocks by name: with body and head as one, and the body's alone."""

    facts: Mapping[str, str]
    whole: Chain
    body: Chain

    def of(self, part: str) -> Chain:
        """Whose names a part has on disk."""
        return self.body if part == BODY else self.whole


@dataclass(frozen=True, slots=True)
class Miss:
    """Why no more was found, and at which position what is kept goes on otherwise, or in which block where only the
    disk has that: at its beginning; "" where nothing is missing."""

    reason: str = ""
    at: int | None = None


class Fetch:
    """The blocks of a plan on their way from the disk. `coming` are how many parts of each come, by place; the place
    behind the last whole block is the tail's."""

    def __init__(self, job: Job, holding: ExitStack) -> None:
        self.coming = Counter(item.place for item in job.items)
        self._job, self._holding = job, holding

    def take(self) -> tuple[int, str, BlockBytes] | None:
        """The next part that arrived from the disk; None where nothing has."""
        found = self._job.take()
        return (found[0].place, found[0].part, found[1]) if found else None

    def wait(self, seconds: float) -> None:
        """Until a part arrived, or nothing more comes, or the time is over."""
        self._job.wait(seconds)

    @property
    def over(self) -> bool:
        """Whether all that came is taken and nothing more comes."""
        return self._job.over and not self._job.arrived

    @property
    def ready(self) -> bool:
        """Whether there is something to take, or it is known that nothing comes."""
        return bool(self._job.arrived) or self._job.over

    def close(self) -> None:
        """Lets go of all of it."""
        self._job.drop()
        self._holding.close()


class Tiers(Generic[P]):
    """`ram` in front of `disk`, or alone."""

    def __init__(self, ram: PrefixIndex[P], disk: Disk | None = None) -> None:
        self._ram, self._disk = ram, disk
        self.block = ram.block
        self._reader = Reader(disk.read) if disk else None
        self._reasons: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._from_disk = 0

    @property
    def limit(self) -> int:
        """Most bytes in memory."""
        return self._ram.limit

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._ram.nbytes

    @property
    def on_disk(self) -> bool:
        """Whether there is a disk behind it."""
        return self._disk is not None

    def chain(self, facts: Mapping[str, str], tokens: Sequence[int]) -> Chains:
        """The names of a token sequence's blocks, computed as `facts` say (see `keys.FACTS`)."""
        return Chains(facts, self._ram.chain(facts, tokens), Chain(identify_body(facts), tokens, self.block))

    def need(self, **words: Any) -> Need:
        """What a row asks for, in blocks of this store; the words are `planner.Need`'s."""
        return Need(block=self.block, **words)

    def plan(self, chains: Chains, need: Need, *, disk: bool = True) -> Plan:
        """Behind what a row that needs this can go on; uses nothing."""
        return plan(*self._survey(chains, need, disk=disk), need)

    def fetch(self, chains: Chains, found: Plan, *, disk: bool = True) -> Fetch:
        """Begins to get what a plan, which was made with the disk or without, needs from there. What is in memory are
        the latest used blocks there from now on, and on disk as well: what is used most is hardly ever read there."""
        lengths: list[int | None] = [None] * found.count + ([found.tail] if found.tail else [])
        held: list[int] = []
        items: list[Item] = []
        for place, length in enumerate(lengths):
            payload = self._ram.get(chains.whole, place, length)
            if payload is not None:
                held.append(place)
            if disk:
                items += self._missing(chains, place, length, payload, headed=found.headed)
        self._ram.touch(chains.whole, [(place, lengths[place]) for place in held])
        if disk and self._disk is not None:
            self._disk.touch(chains.of(part).name(place, lengths[place]) for place in held for part in PARTS)
        holding = ExitStack()
        if items and self._disk is not None:
            holding.enter_context(self._disk.holding([item.name for item in items]))
        job = self._reader.submit(items) if self._reader else Job(items, failed=bool(items), over=True)
        self._from_disk += sum(len(item.tokens) for item in items if item.part == BODY)
        return Fetch(job, holding)

    @property
    def read_ahead(self) -> int:
        """Bytes that were read from the disk, or are being read, and that nobody has taken yet."""
        return self._reader.ahead.held if self._reader else 0

    def bound_ahead(self, nbytes: int) -> None:
        """At most so many are read before they are taken, and never more than ever."""
        if self._reader:
            self._reader.ahead.bound(nbytes)

    def bound_queue(self, nbytes: int) -> None:
        """At most so many bytes wait to be written, and never more than ever."""
        if self._disk is not None:
            self._disk.bound_queue(nbytes)

    def get(self, chains: Chains, place: int, length: int | None = None) -> P | None:
        """What memory has of a block, or of a tail of that length which begins where it does."""
        return self._ram.get(chains.whole, place, length)

    def put(self, chains: Chains, place: int, payload: P, length: int | None = None) -> bool:
        """Keeps it in memory; False where there is no room, or where what comes before it is not there."""
        return self._ram.put(chains.whole, place, payload, length)

    def lacks(self, chains: Chains, place: int, part: str, grade: int, length: int | None = None) -> bool:
        """Whether the disk has no such part of a block that is as good, nor is about to have it."""
        if self._disk is None:
            return False
        kept = self._disk.grade(chains.of(part).name(place, length))
        return kept is None or kept < grade

    def takes(self, nbytes: int) -> bool:
        """Whether the disk has room for so many bytes now."""
        return self._disk is not None and self._disk.takes(nbytes)

    @property
    def writable(self) -> bool:
        """Whether there is a disk that can be written, as far as is known."""
        return self._disk is not None and self._disk.writable

    def offer(
        self,
        chains: Chains,
        place: int,
        part: str,
        meta: Mapping[str, JSON],
        tensors: Iterable[Any],
        grade: int,
        length: int | None = None,
    ) -> bool:
        """Gives the bytes of a part of a block to the disk; False where it drops them. Never waits."""
        if self._disk is None:
            return False
        chain = chains.of(part)
        content = BlockBytes(meta, tuple(Tensor(one.name, one.dtype, one.shape, one.data) for one in tensors))
        return self._disk.offer(
            Offered(
                chain.name(place, length),
                chain.identity,
                chain.nodes[place],
                chain.span(place, length),
                content,
                tail=length is not None,
                grade=grade,
            )
        )

    def why(self, chains: Chains, need: Need, length: int) -> Miss:
        """Why a row gets no more than `length` positions back."""
        if length + self.block > need.total:
            return Miss(BELOW) if not length and need.total < self.block else Miss()
        place = length // self.block
        there = self._there(chains, place, None, disk=True)
        if there.body is not None:
            return self.why_no_head(chains) if need.drafts and there.head is None else Miss(NO_STATE)
        if at := self._ram.parts_at(chains.whole, place):
            return Miss(DIVERGED, at)
        gone = self._disk.why(chains.body.nodes[place + 1]) if self._disk else ""
        if gone in (EVICTED, QUARANTINED):
            return Miss(gone)
        if not place:
            return self._why_nothing(chains)
        goes_on = self._disk is not None and self._disk.follows(chains.body.nodes[place])
        return Miss(DIVERGED, length) if goes_on else Miss()

    def why_no_head(self, chains: Chains) -> Miss:
        """Why there is no head's part of what there is."""
        mine = {chains.whole.identity, chains.body.identity}
        return Miss(OTHER_HEAD if self._known(chains) - mine - self._otherwise(chains) else NO_HEAD)

    def discard(self, chains: Chains, place: int, part: str, length: int | None = None) -> None:
        """Removes a part of a block from the disk: nobody can make sense of it."""
        if self._disk is not None:
            self._disk.discard([chains.of(part).name(place, length)])

    def note_dropped(self, reason: str) -> None:
        """Counts a block that never got as far as the disk."""
        self._dropped[reason] += 1

    def note(self, positions: int, miss: str = "") -> None:
        """Counts a look-up that found so many positions of use, and why it were no more."""
        self._ram.note(positions)
        if miss:
            self._reasons[miss] += 1

    def shrink(self, limit: int) -> int:
        """Drops blocks from memory until at most `limit` bytes are held there; gives the bytes it dropped."""
        return self._ram.shrink(limit)

    def forget(self, tokens: Sequence[int], beyond: int) -> int:
        """Drops from memory the blocks of a text that end behind its first `beyond` tokens, whoever computed them, and
        all that follows those; gives the bytes it dropped."""
        return self._ram.forget(tokens, beyond)

    def drop(self, facts: Mapping[str, str]) -> None:
        """Drops all blocks of one computation from memory; the disk keeps its own."""
        self._ram.drop(facts)

    def close(self) -> None:
        """Reads nothing more from the disk, which is closed by whoever opened it."""
        if self._reader:
            self._reader.close()

    @property
    def counts(self) -> PrefixCounts:
        """What memory holds and what came of all look-ups."""
        return replace(
            self._ram.counts,
            from_disk=self._from_disk,
            miss_reasons=dict(self._reasons),
            dropped=dict(self._dropped),
        )

    def _survey(
        self, chains: Chains, need: Need, *, disk: bool
    ) -> tuple[list[There], list[list[tuple[int, There]]]]:
        there: list[There] = []
        tails = [self._tails(chains, 0, need.total, disk=disk)]
        while (len(there) + 1) * self.block <= need.total:
            found = self._there(chains, len(there), None, disk=disk)
            if found.body is None:
                break
            there.append(found)
            tails.append(self._tails(chains, len(there), need.total, disk=disk))
        return there, tails

    def _there(self, chains: Chains, place: int, length: int | None, *, disk: bool) -> There:
        payload = self._ram.get(chains.whole, place, length)
        found = There() if payload is None else There(*payload.grades)
        if self._disk is None or not disk:
            return found
        return found.best(
            There(*(_grade(self._disk.find(chains.of(part).name(place, length))) for part in PARTS))
        )

    def _tails(self, chains: Chains, place: int, limit: int, *, disk: bool) -> list[tuple[int, There]]:
        most = limit - place * self.block
        lengths = {length for length, _ in self._ram.tails_behind(chains.whole, place, limit)}
        if self._disk is not None and disk:
            for kept in self._disk.tails(chains.body.nodes[place]):
                if kept.length <= most and kept.name == chains.body.name(place, kept.length):
                    lengths.add(kept.length)
        return [(length, self._there(chains, place, length, disk=disk)) for length in sorted(lengths)]

    def _missing(
        self, chains: Chains, place: int, length: int | None, payload: P | None, *, headed: bool
    ) -> list[Item]:
        """The parts that the disk has better than memory does."""
        if self._disk is None:
            return []
        held = (None, None) if payload is None else payload.grades
        missing = []
        for part, grade in zip(PARTS if headed else (BODY,), held, strict=False):
            chain = chains.of(part)
            kept = self._disk.find(chain.name(place, length))
            if kept is not None and (grade is None or kept.grade > grade):
                missing.append(Item(place, part, kept.name, chain.span(place, length), kept.raw_bytes))
        return missing

    def _why_nothing(self, chains: Chains) -> Miss:
        known = self._known(chains) - {chains.whole.identity, chains.body.identity}
        if not known:
            return Miss(NEW)
        return Miss(OTHER_LAYOUT if known & self._otherwise(chains) else OTHER_MODEL)

    def _known(self, chains: Chains) -> set[bytes]:
        """Whoever computed just these first tokens."""
        first = chains.body.span(0)
        on_disk = self._disk.roots(first) if self._disk is not None else ()
        return self._ram.roots(first) | {kept.identity for kept in on_disk}

    def _otherwise(self, chains: Chains) -> set[bytes]:
        """The same model, its prompts cut otherwise."""
        facts = [{**chains.facts, "partition": partition} for partition in PARTITIONS]
        mine = {chains.whole.identity, chains.body.identity}
        return {name for one in facts for name in (identify(one), identify_body(one))} - mine


def _grade(kept: Kept | None) -> int | None:
    return None if kept is None else kept.grade
