"""Rows that share forwards, with the caches their tokens are in: who joins, who leaves. Runs no forward.

Who joins with a long text may be copied in ahead, a layer at a time, with rounds between.

Rows stand in no order: where one leaves, the last takes its place, in the caches as in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mtplxd.engine.draft_vocab import DraftVocab
from mtplxd.engine.fixed_shape import fix_shape, is_shape_stable
from mtplxd.engine.masking import MASK_DRAFTS
from mtplxd.engine.row import Row
from mtplxd.engine.shaping import make_shaper
from mtplxd.families.caches import without
from mtplxd.families.protocols import Head, LayerCache, Target

if TYPE_CHECKING:
    from mtplxd.engine.request import Request


@dataclass(slots=True)
class Batch:
    """Rows that share forwards, with the caches their tokens are in. `head` is None where nothing drafts.

    `width` is the number of positions that every verify forward is padded to, None where its shape follows the drafts.
    `mask_drafts` is off where drafts need not keep to a row's grammar: they then wait for no mask, and more are lost.
    """

    target: Target
    head: Head | None
    rows: list[Row]
    cache: list[LayerCache]
    head_cache: list[LayerCache]
    width: int | None = None
    mask_drafts: bool = MASK_DRAFTS
    vocab: DraftVocab | None = field(init=False)

    def __post_init__(self) -> None:
        ids = self.head.draft_vocab if self.head else None
        self.vocab = None if ids is None else DraftVocab(ids, self.target.vocab_size)

    def join(self, other: Batch) -> None:
        """Takes in the rows of another batch of the same model, with what their caches hold; the other is used up.

        A head that only the other has drafts for its rows from then on; the rows here are plain.
        """
        if other.head is not None and self.head is None:
            self._adopt(other.head)
        theirs = other.head_cache
        if self.head is not None and other.head is None:
            theirs = self.head.make_cache(len(other.rows), other.cache)
        for mine, joining in zip([*self.cache, *self.head_cache], [*other.cache, *theirs], strict=True):
            mine.join(joining)
        self.rows += other.rows

    def make_ready(self, other: Batch, over: Callable[[], bool]) -> bool:
        """Copies ahead what the one row of another batch holds, which is to join: a layer at least, and more until
        `over`, asked after each, says so. Whether all is there; who joins or leaves meanwhile makes it begin again."""
        for mine, coming in self._met(other):
            if not mine.is_ready(coming):
                mine.make_ready(coming)
                if over():
                    break
        return all(mine.is_ready(coming) for mine, coming in self._met(other))

    def forget_coming(self) -> None:
        """Who was made ready does not join."""
        for layer in (*self.cache, *self.head_cache):
            layer.forget_coming()

    def leave(self, place: int) -> Row:
        """Takes a row out; the last one takes its place."""
        for layer in (*self.cache, *self.head_cache):
            layer.leave(place)
        row, self.rows = self.rows[place], without(self.rows, place)
        return row

    def copy_row(self, place: int) -> Batch:
        """A batch of this one row, as it stands between rounds; the row itself is shared, its caches are not."""
        cache = [layer.copy_row(place) for layer in self.cache]
        head_cache = [layer.copy_row(place) for layer in self.head_cache]
        for layer in head_cache:
            layer.read_from(cache)
        return replace(self, rows=[self.rows[place]], cache=cache, head_cache=head_cache)

    def lose_head(self, reason: str) -> None:
        """The head has failed: all rows go on without it, plainly and visibly."""
        self.head, self.head_cache = None, []
        self.__post_init__()
        for row in self.rows:
            row.degrade(reason)

    def _met(self, other: Batch) -> Iterator[tuple[LayerCache, LayerCache]]:
        """Layers of both; a head that only one has is met when its row joins."""
        yield from zip(self.cache, other.cache, strict=True)
        if self.head is not None and other.head is not None:
            yield from zip(self.head_cache, other.head_cache, strict=True)

    def _adopt(self, head: Head) -> None:
        self.head, self.head_cache = head, head.make_cache(len(self.rows), self.cache)
        self.__post_init__()


def open_batch(request: Request) -> Batch:
    """A batch of one new row with empty caches; the head takes part only where the request drafts."""
    model, sampler = request.model, request.sampler
    row = Row(
        list(request.prompt),
        sampler,
        request.depth,
        plain=model.head is None or not request.depth,
        auto=request.auto,
        shaper=make_shaper(sampler, request.prompt),
        matcher=request.grammar.start() if request.grammar else None,
        logprobs=request.logprobs,
    )
    return open_caches(request, row)


def open_caches(request: Request, row: Row) -> Batch:
    """A batch of this row with empty caches, whatever the row has made."""
    model = request.model
    head = None if row.plain else model.head
    cache = model.target.make_cache(1)
    head_cache = head.make_cache(1, cache) if head is not None else []
    batch = Batch(model.target, head, [row], cache, head_cache)
    if request.sampler.reproducible:
        if model.shape_stable is None:
            model.shape_stable = is_shape_stable(model.target, model.fixed_width)
        fix_shape(batch, model.fixed_width)
    return batch
