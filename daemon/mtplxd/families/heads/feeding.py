"""Feeds a published head in other ways than its pack states, for as long as somebody looks at what it drafts then.

The head's own parameters serve every way: only its norms are moved by 1 where stored weights are taken the other way.
Which ways are worth a look, and which one is right, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

from mtplxd.families.body import Body
from mtplxd.families.heads.driver import PublishedHead
from mtplxd.families.heads.norms import is_norm
from mtplxd.families.heads.row import SWITCHES, HeadSettings
from mtplxd.families.protocols import Tap, Taps
from mtplxd.platform.mlx import Array, mx, tree

TAPS: tuple[Tap, ...] = ("post", "pre")
"""The hidden states that a body gives which was opened for all ways."""
_SHIFT = {"as_stored": 0, "zero_centred": 1}


def open_all_taps(body: Body) -> Body:
    """The same model as a body that gives a head's hidden state of every way, in the order of `TAPS`."""
    return Body(body.model, TAPS)


def choose_tap(taps: Taps, settings: HeadSettings) -> Taps:
    """Of the hidden states of `TAPS` the one that a head fed so takes."""
    return (taps[TAPS.index(settings.tap)],)


def ways_to_feed(head: PublishedHead) -> list[HeadSettings]:
    """Every combination of the switches that make a difference to this head."""
    own = head.settings
    recursive = len(head.module.layers) == 1 or head.family.chained != "target"
    values = {
        name: (getattr(own, name),)
        if name == "recursion" and not (recursive and head.family.output_norm)
        else known
        for name, known in SWITCHES.items()
    }
    return [HeadSettings(**dict(zip(values, chosen, strict=True))) for chosen in product(*values.values())]


@contextmanager
def fed(head: PublishedHead, settings: HeadSettings) -> Iterator[PublishedHead]:
    """The head, fed like this until the end of the block, and as before after it."""
    before, layers = head.settings, head.module.layers
    order = [layer.hidden_first for layer in layers]
    norms = _norms(head.module)
    step = _SHIFT[settings.norm_convention] - _SHIFT[before.norm_convention]
    try:
        head.settings = settings
        for layer in layers:
            layer.hidden_first = settings.concat == "hidden_first"
        if step:
            _put(head.module, {path: _moved(norm, step) for path, norm in norms.items()})
        yield head
    finally:
        head.settings = before
        for layer, first in zip(layers, order, strict=True):
            layer.hidden_first = first
        _put(head.module, norms)


def _norms(module: Any) -> dict[str, Array]:
    return {path: array for path, array in tree.tree_flatten(module.parameters()) if is_norm(path, array)}


def _moved(norm: Array, step: int) -> Array:
    return (norm.astype(mx.float32) + step).astype(norm.dtype)


def _put(module: Any, norms: dict[str, Array]) -> None:
    module.load_weights(list(norms.items()), strict=False)
