"""What is kept on disk, as memory knows it: by name, by what it follows, by its tokens, with its use and its holders.

Touches no file, knows no policy; whoever has one takes turns at it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mtplxd.store.blocks import Kept
from mtplxd.store.keys import digest

REMEMBERED = 8192
"""Names of blocks that are gone of which it is remembered why, the newest; each takes a fifth of a KB for good."""


def root_of(parent: bytes, identity: bytes, tokens: Sequence[int]) -> bytes:
    """What the first blocks of the same tokens have in common whoever computed them; empty for a block that is not
    the first."""
    return digest(b"", tokens) if parent == identity else b""


@dataclass(slots=True)
class Entry:
    """A block, when it was used last, how many need it now, how tight it is packed, and the like of `root_of`."""

    kept: Kept
    used: int
    packed: int = 0
    root: bytes = b""
    holds: int = 0

    @property
    def name(self) -> bytes:
        return self.kept.name

    @property
    def parent(self) -> bytes:
        return self.kept.parent

    @property
    def nbytes(self) -> int:
        return self.kept.stored_bytes


class Shelf:
    """Blocks and what is known of those that went."""

    def __init__(self) -> None:
        self.nbytes = self.raw_bytes = 0
        self.tick = 0
        self.touched: set[bytes] = set()
        self._entries: dict[bytes, Entry] = {}
        self._followers: Counter[bytes] = Counter()
        self._tails: dict[bytes, dict[bytes, Kept]] = {}
        self._roots: dict[bytes, dict[bytes, Kept]] = {}
        self._gone: OrderedDict[bytes, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter([*self._entries.values()])

    def __contains__(self, name: bytes) -> bool:
        return name in self._entries

    def get(self, name: bytes) -> Entry | None:
        """The block of that name."""
        return self._entries.get(name)

    def tails(self, parent: bytes) -> list[Kept]:
        """The tails behind a block, the longest first."""
        return sorted(self._tails.get(parent, {}).values(), key=lambda kept: (-kept.length, kept.name))

    def roots(self, tokens: Sequence[int]) -> list[Kept]:
        """The first blocks of just these tokens, of any identity."""
        return [*self._roots.get(digest(b"", tokens), {}).values()]

    def add(self, entry: Entry) -> None:
        """Puts a block there, in place of one of that name, whose holders it takes over."""
        name = entry.name
        if (old := self._entries.get(name)) is not None:
            entry.holds = old.holds
            self._take_out(old)
        self._entries[name] = entry
        self._followers[entry.parent] += 1
        self.nbytes += entry.kept.stored_bytes
        self.raw_bytes += entry.kept.raw_bytes
        self.tick = max(self.tick, entry.used)
        self._gone.pop(name, None)
        if entry.kept.tail:
            self._tails.setdefault(entry.parent, {})[name] = entry.kept
        if entry.root:
            self._roots.setdefault(entry.root, {})[name] = entry.kept

    def remove(self, name: bytes, why: str) -> Entry | None:
        """Takes a block away and remembers why; gives it where it was there."""
        self.note_gone(name, why)
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._take_out(entry)
            self.touched.discard(name)
        return entry

    def note_gone(self, name: bytes, why: str) -> None:
        """Remembers why a block is not there."""
        self._gone[name] = why
        self._gone.move_to_end(name)
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)

    def why(self, name: bytes) -> str | None:
        """Why a block is not there, as far as that is remembered."""
        return self._gone.get(name)

    def touch(self, names: Iterable[bytes]) -> None:
        """Makes these blocks the latest used."""
        self.tick += 1
        for name in names:
            if (entry := self._entries.get(name)) is not None:
                entry.used = self.tick
                self.touched.add(name)

    def hold(self, names: Iterable[bytes]) -> list[bytes]:
        """Somebody needs these blocks from now on; gives those that are there, for `release`."""
        held = [name for name in names if name in self._entries]
        for name in held:
            self._entries[name].holds += 1
        return held

    def release(self, held: Iterable[bytes]) -> None:
        """Ends what `hold` began."""
        for name in held:
            if (entry := self._entries.get(name)) is not None:
                entry.holds = max(0, entry.holds - 1)

    def has_followers(self, name: bytes) -> bool:
        """Whether a block comes behind this one."""
        return name in self._followers

    def unreachable(self) -> list[bytes]:
        """Blocks whose beginning is not there, with all that follows them."""
        reached: dict[bytes, bool] = {}
        for entry in self._entries.values():
            path: list[bytes] = []
            at: Entry | None = entry
            while at is not None and at.name not in reached and at.parent != at.kept.identity:
                path.append(at.name)
                reached[at.name] = False
                at = self._entries.get(at.parent)
            whole = at is not None and reached.setdefault(at.name, True)
            reached.update(dict.fromkeys(path, whole))
        return [name for name, whole in reached.items() if not whole]

    def _take_out(self, entry: Entry) -> None:
        self._followers[entry.parent] -= 1
        if not self._followers[entry.parent]:
            del self._followers[entry.parent]
        self.nbytes -= entry.kept.stored_bytes
        self.raw_bytes -= entry.kept.raw_bytes
        for groups, key in ((self._tails, entry.parent), (self._roots, entry.root)):
            group = groups.get(key, {})
            if group.pop(entry.name, None) is not None and not group:
                del groups[key]
