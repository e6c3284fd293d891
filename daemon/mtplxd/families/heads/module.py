"""The modules of published heads: what stands around a block of mlx-lm's. It neither binds tensors nor keeps caches.

For a pair (h_i, t_{i+1}), E the embedding, O the output matrix:

    x = fc · [ enorm(E[t_{i+1}]) ; hnorm(h_i) ]       the halves swapped where `hidden_first`
    y = block(x)
    z = norm(y)                                       z = y where there is no output norm
    logits = O · z
"""

from __future__ import annotations

from typing import Any

from mtplxd.platform.mlx import Array, mx, nn


class HeadLayer(nn.Module):  # type: ignore[misc]
    """One layer that drafts. Sizes: H hidden, V vocabulary; `own_embedding` and `own_output` are V or 0 for the
    body's."""

    def __init__(
        self,
        block: Any,
        hidden: int,
        eps: float,
        *,
        hidden_first: bool = False,
        output_norm: bool = True,
        own_embedding: int = 0,
        own_output: int = 0,
    ) -> None:
        super().__init__()
        self.enorm = nn.RMSNorm(hidden, eps=eps)
        self.hnorm = nn.RMSNorm(hidden, eps=eps)
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.block = block
        if output_norm:
            self.norm = nn.RMSNorm(hidden, eps=eps)
        if own_embedding:
            self.embed_tokens = nn.Embedding(own_embedding, hidden)
        if own_output:
            self.output = nn.Linear(hidden, own_output, bias=False)
        self.hidden_first = hidden_first

    def __call__(self, embedded: Array, hidden: Array, mask: Any, cache: Any) -> Array:
        """Embedded tokens and hidden states, both [B, L, H], to y [B, L, H]; extends the cache by L."""
        halves = [self.enorm(embedded), self.hnorm(hidden)]
        if self.hidden_first:
            halves.reverse()
        return self.block(self.fc(mx.concatenate(halves, axis=-1)), mask, cache)

    def finish(self, y: Array) -> Array:
        """y to z, both [..., H]."""
        return self.norm(y) if "norm" in self else y


class HeadModule(nn.Module):  # type: ignore[misc]
    """The layers of a head, in the order they draft; a single one is fed on with its own state."""

    def __init__(self, layers: list[HeadLayer]) -> None:
        super().__init__()
        self.layers = layers
