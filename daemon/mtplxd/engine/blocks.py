"""A block of a prompt as the engine has it: the body's and the head's part, what each is good for, and both as bytes.

Where blocks are kept, and by which names, is the store's. What a layer's pieces are is `families.pieces`'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtplxd.families.pieces import Piece
from mtplxd.families.pieces_form import FORM, JSON, Packed, Packer, TensorBytes, Unpacker, check_form
from mtplxd.families.protocols import Taps

GAPPED, PASSES, RESTORES = range(3)
"""Grades as `store.planner` has them: some slots of a window are missing; a row can come past; a row can go on behind
it. Above that they tell what takes whose place: nothing longer that has a lower one."""
TURN_END, PROMPT_END = 1, 2
"""How lasting a tail is, where what is longer does not tell the same: the end of a turn, and that of a prompt, which
may be sent again."""
BODY, HEAD = "body", "head"


@dataclass(frozen=True, slots=True)
class Block:
    """What is kept of a block. `head` and `taps` (at its last position, [1, 1, H] each) are there if its row drafts.

    Nothing longer that is less `lasting` takes its place.
    """

    body: tuple[Piece, ...] = ()
    head: tuple[Piece, ...] = ()
    taps: Taps = ()
    lasting: int = 0

    @property
    def grades(self) -> tuple[int | None, int | None]:
        """What the body's and the head's part are good for, None where there is none."""
        return self._grade(self.body) if self.body else None, self._grade(self.head) if self.taps else None

    def grade(self, part: str) -> int | None:
        """What a part is good for."""
        return self.grades[0 if part == BODY else 1]

    def joined(self, old: Block | None) -> Block:
        """With what only `old`, which is of the same tokens, has, or has better."""
        if old is None:
            return self
        mine, theirs = (tuple(-1 if grade is None else grade for grade in one.grades) for one in (self, old))
        body = old.body if theirs[0] > mine[0] else self.body
        with_head = old if theirs[1] > mine[1] else self
        return Block(body, with_head.head, with_head.taps, max(self.lasting, old.lasting))

    def betters(self, old: Block | None) -> bool:
        """Whether it has anything that `old` has not, or has it better."""
        return old is None or self.joined(old).grades != old.grades

    @property
    def arrays(self) -> list[Any]:
        """All of its arrays."""
        return [*self.taps, *(array for piece in (*self.body, *self.head) for array in piece.arrays)]

    @property
    def nbytes(self) -> int:
        """Bytes it holds."""
        return sum(int(array.nbytes) for array in self.arrays)

    def part_bytes(self, part: str) -> int:
        """Bytes that a part holds."""
        of_part = replace(self, head=(), taps=()) if part == BODY else replace(self, body=())
        return of_part.nbytes

    def pack(self, part: str) -> tuple[dict[str, JSON], tuple[Packed, ...]]:
        """The bytes of one part; its arrays are evaluated."""
        packer = Packer()
        pieces = self.body if part == BODY else self.head
        taps = () if part == BODY else self.taps
        meta: dict[str, JSON] = {
            "form": FORM,
            "lasting": self.lasting,
            "pieces": [packer.piece(piece) for piece in pieces],
            "taps": [packer.array(tap) for tap in taps],
        }
        return meta, packer.tensors()

    def _grade(self, pieces: Sequence[Piece]) -> int:
        if any(piece.gap for piece in pieces):
            return GAPPED
        if not all(piece.whole for piece in pieces):
            return PASSES
        return RESTORES + self.lasting


def unpack(part: str, meta: Mapping[str, JSON], tensors: Sequence[TensorBytes]) -> Block:
    """A block of that part alone, its arrays fresh and not evaluated. Raises ValueError for what was not packed so."""
    check_form(meta)
    found = Unpacker(tensors)
    match meta:
        case {"pieces": list(trees), "taps": list(places), "lasting": int(lasting)}:
            pieces = tuple(found.piece(tree) for tree in trees)
            taps = tuple(found.array(place) for place in places)
            if part == BODY:
                return Block(body=pieces, lasting=lasting)
            return Block(head=pieces, taps=taps, lasting=lasting)
    raise ValueError("a block's description is not one")
