"""Log-probabilities of a round's tokens, from the target's raw logits; the same at every depth. Chooses no token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtplxd.engine.events import TokenLogprob
from mtplxd.engine.exponential import sum_exponentials
from mtplxd.engine.sampling import largest_in_order
from mtplxd.platform.mlx import Array, mx


@dataclass(slots=True)
class RoundLogprobs:
    """Arrays of n = k+1 positions, not evaluated: [B, n], and for the N likeliest [B, n, N]."""

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
        columns = (part[row, :count].tolist() for part in self.arrays)
        return tuple(
            TokenLogprob(token, chosen, tuple(zip(ids[:tops], values[:tops], strict=True)), law)
            for token, chosen, ids, values, law in zip(*columns, strict=True)
        )


def measure_logprobs(
    logits: Array, law: Array | None, drafts: Array, accepted: Array, token: Array, tops: int
) -> RoundLogprobs:
    """Of raw logits [B, n, V]: position i holds draft i where it was accepted, `token` [B] right after those.

    `law` [B, n, V] is what tokens were drawn from; None for greedy decoding, whose choice is certain.
    """
    tokens = place_tokens(drafts, accepted, token)
    most = mx.max(logits, axis=-1, keepdims=True)
    total = most + mx.log(sum_exponentials(logits, most))
    places = tokens[..., None]
    chosen = (mx.take_along_axis(logits, places, axis=-1) - total)[..., 0]
    ids, values = largest_in_order(logits, max(tops, 1))
    drawn_with = mx.ones_like(chosen) if law is None else mx.take_along_axis(law, places, axis=-1)[..., 0]
    return RoundLogprobs(tokens, chosen, ids, values - total, mx.log(drawn_with))


def place_tokens(drafts: Array, accepted: Array, token: Array) -> Array:
    """Accepted drafts [B, k] with the token after them, int32 [B, k+1]; what follows is of no meaning."""
    padded = mx.concatenate([drafts, token[:, None]], axis=1)
    here = mx.arange(padded.shape[1]) == accepted[:, None]
    return mx.where(here, token[:, None], padded)


def widest(tops: Sequence[int | None]) -> int | None:
    """How many alternatives a batch must find: None where no row asks for log-probabilities."""
    asked = [count for count in tops if count is not None]
    return max(asked) if asked else None
