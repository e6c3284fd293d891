"""Reads hidden states out of an mlx-lm body without changing its forward. Knows layers, not heads.

A layer is replaced, after loading, by a plain callable that records its output. It is no `nn.Module`: the layer's
parameters leave the model's tree, so weights are loaded, cast and counted before.
"""

from __future__ import annotations

from typing import Any

from mtplxd.platform.mlx import Array


class RecordedLayer:
    """Stands in for a layer: same call, same attributes, and it keeps the last output."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self.output: Array | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Array:
        self.output = self._layer(*args, **kwargs)
        return self.output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def take(self) -> Array:
        """Gives the recorded output and forgets it, so that no graph outlives its round."""
        output, self.output = self.output, None
        return output


def record_layers(layers: list[Any], counts: tuple[int, ...]) -> list[RecordedLayer]:
    """Records the hidden after each of `counts` layers (1-based); the list of layers is changed in place."""
    recorders = []
    for count in counts:
        recorder = RecordedLayer(layers[count - 1])
        layers[count - 1] = recorder
        recorders.append(recorder)
    return recorders
