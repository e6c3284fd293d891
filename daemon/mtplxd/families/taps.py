"""Reads hidden states out of an mlx-lm body without changing its forward. Knows layers and norms, not heads.

A part is replaced, after loading, by a plain callable that keeps what passes through it. It is no `nn.Module`: the
part's parameters leave the model's tree, so weights are loaded, cast and counted before.
"""

from __future__ import annotations

from typing import Any

from mtplxd.platform.mlx import Array


class Recorder:
    """Stands in for a part: same call, same attributes, and it keeps the hidden state that is asked for."""

    def __init__(self, part: Any) -> None:
        self._part = part
        self.kept: Array | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

    def take(self) -> Array:
        """Gives the recorded state and forgets it, so that no graph outlives its round."""
        kept, self.kept = self.kept, None
        return kept


class RecordedLayer(Recorder):
    """Keeps the layer's output: the hidden state, where it gives more than one thing."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = self._part(*args, **kwargs)
        self.kept = output[0] if isinstance(output, tuple) else output
        return output


class RecordedNorm(Recorder):
    """Keeps what enters the norm."""

    def __call__(self, hidden: Array) -> Array:
        self.kept = hidden
        return self._part(hidden)


def record_layer(layers: list[Any], count: int) -> Recorder:
    """Records the hidden after `count` layers, from 1; the list of layers is changed in place."""
    recorder = layers[count - 1] = RecordedLayer(layers[count - 1])
    return recorder


def record_norm(owner: Any, name: str) -> Recorder:
    """Records what enters the norm that `owner` has under `name`; the owner is changed in place."""
    recorder = RecordedNorm(getattr(owner, name))
    setattr(owner, name, recorder)
    return recorder
