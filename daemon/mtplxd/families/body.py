"""A body of mlx-lm behind the engine's `Target`: where its parts are, its taps, its output matrix.

Only bodies whose layers all keep plain keys and values are driven here.
"""

from __future__ import annotations

from typing import Any

from mtplxd.families.caches import make_caches
from mtplxd.families.protocols import LayerCache, Tap, Taps
from mtplxd.families.taps import record_layers
from mtplxd.platform.mlx import Array


class Body:
    """Drives an mlx-lm causal model. `taps` are layer counts; the count of all layers means after the final norm."""

    def __init__(self, model: Any, taps: tuple[Tap, ...] = ()) -> None:
        self.model = model
        self._inner = model.model
        self.layers = len(model.layers)
        self.vocab_size: int = model.args.vocab_size
        self._taps = taps
        self._recorders = record_layers(
            self._inner.layers, tuple(tap for tap in taps if isinstance(tap, int) and tap < self.layers)
        )

    def make_cache(self, rows: int) -> list[LayerCache]:
        """Empty caches, one a layer that keeps any."""
        return make_caches(self.model, rows)

    def run(self, tokens: Array, cache: list[LayerCache]) -> tuple[Array, Taps]:
        """Extends the caches by tokens [B, L]; gives the final-normed hidden [B, L, H] and the taps."""
        hidden = self._inner(tokens, cache)
        recorded = iter([recorder.take() for recorder in self._recorders])
        return hidden, tuple(hidden if tap in (self.layers, "post") else next(recorded) for tap in self._taps)

    def logits(self, hidden: Array) -> Array:
        """Final hidden [..., H] to logits [..., V]."""
        if self.model.args.tie_word_embeddings:
            return self.embedding.as_linear(hidden)
        return self.model.lm_head(hidden)

    @property
    def embedding(self) -> Any:
        """The token embedding, shared with the head."""
        return self._inner.embed_tokens

    @property
    def output_weight(self) -> Array:
        """The output matrix [V, H], a view of the embedding where the two are tied."""
        return self.embedding.weight if self.model.args.tie_word_embeddings else self.model.lm_head.weight
