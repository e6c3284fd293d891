"""How far one distribution of the next token is from another, over the rows of two matrices of logits. Pure numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass
class Divergence:
    """Sums over positions: of KL(first ‖ second) in nats, and of those whose most likely token is the same."""

    kl: float = 0.0
    same: int = 0
    positions: int = 0

    def add(self, first: Floats, second: Floats) -> None:
        """Takes logits [L, V] of both at the same positions."""
        p, q = log_softmax(first), log_softmax(second)
        self.kl += float((np.exp(p) * (p - q)).sum())
        self.same += int((p.argmax(axis=-1) == q.argmax(axis=-1)).sum())
        self.positions += len(p)


def log_softmax(logits: Floats) -> npt.NDArray[np.float64]:
    """Log-probabilities [L, V] in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True)))
