"""A body of mlx-lm behind the engine's `Target`: its forward on caches that can go back, its taps, its logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mtplxd.families.anatomy import Outlet, find_anatomy
from mtplxd.families.caches import make_caches
from mtplxd.families.protocols import LayerCache, Tap, Taps
from mtplxd.families.taps import Recorder, record_layer, record_norm
from mtplxd.platform.mlx import Array, mx, nn


class Body:
    """Drives an mlx-lm causal model whose weights are loaded.

    `taps` are `"post"` (after the final norm), `"pre"` (what enters it) or counts of layers; the count of all layers
    means after the final norm. `apart` says why its rows cannot share forwards, "" where they can.
    """

    def __init__(self, model: Any, taps: tuple[Tap, ...] = ()) -> None:
        self.model = model
        self.apart = ""
        self._anatomy = find_anatomy(model)
        self._outlet = Outlet(self._anatomy)
        self.layers = len(model.layers)
        self.vocab_size = self._anatomy.vocab_size
        self.final_norm = getattr(self._anatomy.inner, self._anatomy.norm_name)
        self._recorders: list[Recorder] = []
        self._taps = [self._open_tap(tap) for tap in taps]

    def make_cache(self, rows: int) -> list[LayerCache]:
        """Empty caches, one a layer that keeps any."""
        return make_caches(self.model, rows)

    def run(self, tokens: Array, cache: list[LayerCache]) -> tuple[Array, Taps]:
        """Extends the caches by tokens [B, L]; gives the final-normed hidden [B, L, H] and the taps."""
        hidden = self._anatomy.inner(tokens, cache=cache)
        return hidden, tuple(take(hidden) for take in self._taps)

    def logits(self, hidden: Array) -> Array:
        """Final hidden [..., H] to logits [..., V]."""
        return self._outlet.logits(hidden)

    @property
    def embedding(self) -> Any:
        """The token embedding, shared with the head."""
        return self._anatomy.embedding

    @property
    def norm_scale(self) -> Array:
        """What the final norm multiplies by [H], whatever it adds to its weights."""
        norm = getattr(self._anatomy.inner, self._anatomy.norm_name)
        if type(norm) in (nn.RMSNorm, nn.LayerNorm):
            return norm.weight
        return norm(mx.ones(norm.weight.shape))

    @property
    def output_weight(self) -> Array:
        """The output matrix [V, H], a view of the embedding where the two are tied; unpacked where it is quantised."""
        output = self._anatomy.output_matrix
        if "scales" not in output:
            return output.weight
        return mx.dequantize(
            output.weight,
            output.scales,
            output.get("biases"),
            group_size=output.group_size,
            bits=output.bits,
            mode=output.mode,
        )

    def _open_tap(self, tap: Tap) -> Callable[[Array], Array]:
        """What gives the tap's hidden state, once a forward has given its final one."""
        if tap in ("post", self.layers):
            return lambda hidden: hidden
        inner = self._anatomy.inner
        before = tap == "pre"
        recorder = (
            record_norm(inner, self._anatomy.norm_name) if before else record_layer(inner.layers, int(tap))
        )
        self._recorders.append(recorder)
        return lambda _hidden: recorder.take()
