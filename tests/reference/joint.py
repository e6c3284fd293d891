"""What every multi-token-prediction head does around its block, from the equations, in numpy alone.

For a pair (h_i, t_{i+1}): x = W [ n_e(E t_{i+1}) ; n_h(h_i) ], y = block(x_0 … x_i), z = n_o(y), logits = O z.
A further draft is a pair (z, draft), or (y, draft), at the next position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from reference.attention import Floats, rms_norm

Block = Callable[[Floats], Floats]


@dataclass(frozen=True)
class ReferenceHead:
    """A head's parts as numbers: norms are factors, None for none. `embedding` and `output` are [V, H]."""

    block: Block
    joint: Floats
    embed_norm: Floats
    hidden_norm: Floats
    output_norm: Floats | None
    embedding: Floats
    output: Floats
    eps: float
    hidden_first: bool = False
    feeds_back_normed: bool = True

    def states(self, tokens: Sequence[int], hidden: Floats) -> Floats:
        """y [L, H] of pairs of hidden states [L, H] and the tokens after them."""
        halves = [
            rms_norm(self.embedding[list(tokens)], self.embed_norm, self.eps),
            rms_norm(hidden, self.hidden_norm, self.eps),
        ]
        if self.hidden_first:
            halves.reverse()
        return self.block(np.concatenate(halves, axis=-1) @ self.joint.T)

    def finish(self, y: Floats) -> Floats:
        return y if self.output_norm is None else rms_norm(y, self.output_norm, self.eps)

    def logits(self, y: Floats) -> Floats:
        return self.finish(y) @ self.output.T

    def draft(self, tokens: Sequence[int], hidden: Floats, drafts: Sequence[int]) -> Floats:
        """Logits [1 + drafts, V]: after the true pairs, then after each of these drafts."""
        tokens, made = list(tokens), []
        for draft in [*drafts, None]:
            y = self.states(tokens, hidden)[-1]
            made.append(self.logits(y))
            if draft is not None:
                fed = self.finish(y) if self.feeds_back_normed else y
                tokens, hidden = [*tokens, draft], np.concatenate([hidden, fed[None]])
        return np.stack(made)


def residual_block(attention: Block, mlp: Block, before: Floats, between: Floats, eps: float) -> Block:
    """x + attention(norm x), then that + mlp(norm of it)."""

    def block(x: Floats) -> Floats:
        x = x + attention(rms_norm(x, before, eps))
        return x + mlp(rms_norm(x, between, eps))

    return block
