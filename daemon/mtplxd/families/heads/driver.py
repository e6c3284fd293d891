"""Drives a published head of one layer, fed recursively, behind the engine's `Head`. Several layers are `chain`'s.

Its state is y, the block's output before the output norm: logits come from norm(y), and recursion feeds back norm(y)
or y, as the family's settings say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtplxd.families.heads.module import HeadLayer, HeadModule
from mtplxd.families.heads.row import HeadFamily, HeadSettings
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import Array, tree


class PublishedHead:
    """A bound module beside its body. `args` are the text model's, `settings` those in force.

    `apart` says why rows of this kind of head cannot share forwards, "" where they can.
    """

    draft_vocab: Array | None = None
    apart = ""

    def __init__(
        self,
        module: HeadModule,
        family: HeadFamily,
        settings: HeadSettings,
        body: Any,
        args: Any,
        depth_max: int,
    ) -> None:
        self.module = module
        self.family = family
        self.settings = settings
        self.depth_max = depth_max
        self.body = body
        self.args = args

    def make_cache(self, rows: int, body_cache: Sequence[LayerCache]) -> list[LayerCache]:  # noqa: ARG002
        """Empty caches, one a layer."""
        return [self.family.cache(self.args, j, rows) for j in range(len(self.module.layers))]

    def absorb(self, tokens: Array, taps: Taps, cache: list[LayerCache]) -> Array:
        """Runs true pairs; gives y [B, L, H]."""
        (hidden,) = taps
        return self.run_layer(0, tokens, hidden, cache)

    def extend(self, tokens: Array, state: Array, cache: list[LayerCache]) -> Array:
        """Runs recursion pairs; gives y [B, 1, H]."""
        return self.run_layer(0, tokens, self.fed_back(0, state), cache)

    def logits(self, state: Array) -> Array:
        """y [..., H] to logits [..., V]."""
        return self.layer_logits(0, state)

    def run_layer(self, j: int, tokens: Array, hidden: Array, cache: list[LayerCache]) -> Array:
        """Layer j over pairs of tokens [B, L] and hidden states [B, L, H]; gives y [B, L, H]."""
        layer: HeadLayer = self.module.layers[j]
        embed = layer.embed_tokens if "embed_tokens" in layer else self.body.embedding
        mask = self.family.mask(self.args, cache[j], tokens.shape[1])
        return layer(embed(tokens), hidden, mask, cache[j])

    def fed_back(self, j: int, state: Array) -> Array:
        """What the next pair takes of layer j's y."""
        return self.module.layers[j].finish(state) if self.settings.recursion == "post" else state

    def layer_logits(self, j: int, state: Array) -> Array:
        """Layer j's y [..., H] to logits [..., V]."""
        layer: HeadLayer = self.module.layers[j]
        normed = layer.finish(state)
        return layer.output(normed) if "output" in layer else self.body.logits(normed)

    @property
    def nbytes(self) -> int:
        """Bytes of the head's own parameters; what it takes from the body is the body's."""
        return sum(array.nbytes for _, array in tree.tree_flatten(self.module.parameters()))
