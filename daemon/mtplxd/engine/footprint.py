"""Measures what a row of a loaded model takes: from the caches its own layers fill, whatever their kind.

What many rows take together, and whether they fit, is `scheduling`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mtplxd.engine.row import PENDING_LIMIT
from mtplxd.engine.scheduling.footprint import Held
from mtplxd.families.caches.slots import STEP, SlotCache, whole_steps
from mtplxd.families.caches.window import SLACK, WindowCache
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.packs.memory import PREFILL_TOKENS, Footprint
from mtplxd.platform.mlx import mx

if TYPE_CHECKING:
    from mtplxd.families.load import LoadedModel

LOGITS = 3
"""Arrays as large as a round's logits that live at once: raw ones, shaped ones, a law."""


def measure_footprint(model: LoadedModel) -> Footprint:
    """Runs one forward of as many positions as a round may have through body and head, and weighs what it leaves."""
    width, target, head = 1 + model.depth_max, model.target, model.head
    tokens = mx.zeros((1, width), mx.int32)
    cache = target.make_cache(1)
    hidden, taps = target.run(tokens, cache)
    made = [*target.logits(hidden).shape[-1:]]
    if head is not None:
        head_cache = head.make_cache(1, cache)
        mx.eval(head.absorb(tokens, taps, head_cache))
        cache = [*cache, *head_cache]
    mx.eval([array for layer in cache for array in layer.state], hidden, taps)
    pairs = 0 if head is None else PENDING_LIMIT * _bytes_of_position(taps, width)
    logits = LOGITS * width * made[0] * hidden.itemsize
    return footprint_of(cache, beside=pairs + logits)


def footprint_of(cache: Sequence[LayerCache], beside: int = 0) -> Footprint:
    """What a row takes whose caches hold its first few positions; `beside` are bytes it holds in no cache."""
    position, row, windows = 0, beside, list[tuple[int, int]]()
    for part in _parts(cache):
        if not isinstance(part, SlotCache):
            row += part.nbytes
        elif part.keys is not None:
            each = part.nbytes // (part.keys.shape[0] * part.keys.shape[2])
            if isinstance(part, WindowCache):
                most = whole_steps(
                    part.window + SLACK + STEP + PREFILL_TOKENS
                )  # dropped once a chunk is written
                windows.append((most, each))
            else:
                position += each
    return Footprint(position, row, tuple(windows))


def room_of(cache: Sequence[LayerCache]) -> Held:
    """Rows and slots that a batch's caches have room for now."""
    shapes = [
        (part.keys.shape[0], part.keys.shape[2])
        for part in _parts(cache)
        if isinstance(part, SlotCache) and part.keys is not None
    ]
    return Held(max((rows for rows, _ in shapes), default=0), max((slots for _, slots in shapes), default=0))


def _parts(cache: Iterable[Any]) -> Iterator[Any]:
    """The caches that hold arrays, also those that lie inside another."""
    for layer in cache:
        inner = getattr(layer, "caches", None) or ([layer.inner] if hasattr(layer, "inner") else None)
        if inner is None:
            yield layer
        else:
            yield from _parts(inner)


def _bytes_of_position(taps: Taps, width: int) -> int:
    return sum(int(tap.nbytes) for tap in taps) // width
