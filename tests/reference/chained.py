"""Heads of several layers from the equations: each layer over the whole text, one token further on than the last.

Layer j at slot i takes t_{i+1+j} and, as hidden, the state of layer j − 1 at slot i, or always the target's h_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from reference.attention import Floats
from reference.joint import ReferenceHead


@dataclass(frozen=True)
class ReferenceChain:
    """The layers in order; `of_target` says that all take the target's hidden states."""

    layers: tuple[ReferenceHead, ...]
    of_target: bool

    def draft(self, tokens: Sequence[int], hidden: Floats, drafts: Sequence[int]) -> Floats:
        """Logits [1 + drafts, V] behind hidden states [n, H] and the tokens after them: one layer for each row."""
        known, made, taken = [*tokens, *drafts], [], hidden
        for j, layer in enumerate(self.layers[: 1 + len(drafts)]):
            states = layer.states(known[j : j + len(hidden)], taken)
            made.append(layer.logits(states[-1]))
            if not self.of_target:
                taken = layer.finish(states) if layer.feeds_back_normed else states
        return np.stack(made)
