"""Log-probabilities of a round's tokens, from the target's raw logits; the same at every depth. Chooses no token.

Rows that ask for none are left out of all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtplxd.engine.events import TokenLogprob
from mtplxd.engine.exponential import sum_exponentials
from mtplxd.engine.grouping import take_rows
from mtplxd.engine.judging import Judgement
from mtplxd.engine.ranking import largest_in_order
from mtplxd.platform.mlx import Array, mx


@dataclass(slots=True)
class RoundLogprobs:
    """Arrays of n = k+1 positions of the rows that ask, not evaluated: [b, n], and for the N likeliest [b, n, N].

    `places` tells where in them a row of the batch stands.
    """

    places: dict[int, int]
    tokens: Array
    chosen: Array
    ids: Array
    values: Array
    laws: Array

    @property
    def arrays(self) -> list[Array]:
        """What there is to evaluate."""
        return [self.tokens, self.chosen, self.ids, self.values, self.laws]

    def read(self, row: int, count: int, tops: int) -> tuple[TokenLogprob, ...]:
        """The first `count` tokens of a row, each with `tops` alternatives."""
        columns = (part[self.places[row], :count].tolist() for part in self.arrays)
        return tuple(
            TokenLogprob(token, chosen, tuple(zip(ids[:tops], values[:tops], strict=True)), law)
            for token, chosen, ids, values, law in zip(*columns, strict=True)
        )


def measure_logprobs(
    logits: Array, judgement: Judgement, drafts: Array, asked: Sequence[int | None]
) -> RoundLogprobs | None:
    """Of raw logits [B, n, V] and drafts [B, k]: position i holds draft i where it was accepted, and the token after
    them right behind.

    `asked` is how many alternatives each row wants, None where it wants no log-probabilities; None where no row does.
    """
    rows = [b for b, tops in enumerate(asked) if tops is not None]
    if not rows:
        return None
    every = place_tokens(drafts, judgement.accepted, judgement.token)
    masses = take_rows(judgement.drawn.at(every, logits.dtype), rows)
    own, tokens = take_rows(logits, rows), take_rows(every, rows)
    ids, values = largest_in_order(own, max(1, *(asked[b] or 0 for b in rows)))
    most = values[..., :1]
    total = most + mx.log(sum_exponentials(own, most))
    chosen = mx.take_along_axis(own, tokens[..., None], axis=-1) - total
    places = {b: place for place, b in enumerate(rows)}
    return RoundLogprobs(places, tokens, chosen[..., 0], ids, values - total, mx.log(masses))


def place_tokens(drafts: Array, accepted: Array, token: Array) -> Array:
    """Accepted drafts [B, k] with the token after them, int32 [B, k+1]; what follows is of no meaning."""
    padded = mx.concatenate([drafts, token[:, None]], axis=1)
    here = mx.arange(padded.shape[1]) == accepted[:, None]
    return mx.where(here, token[:, None], padded)
