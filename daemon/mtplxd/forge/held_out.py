"""Estimates acceptance offline, along recorded text that was never trained on.

Both distributions go through the sampler's chain (temperature 0.6, top-p). At depth j the head is fed the recorded
tokens, as if they were its accepted drafts. Two figures: `overlap`, the mean of Σ min(p, q) over generated tokens, and
`rounds`, what decoding at a fixed depth would count: rounds are walked along the text with their exact probabilities,
since text drawn from p under speculative decoding has the law of plain decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mtplxd.forge.losses import SOFT, nucleus, soften
from mtplxd.forge.shards import FIELDS, GENERATED, Shard
from mtplxd.platform.mlx import Array, mx

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
KEPT = 96
"""Draft tokens looked at per position; a nucleus at temperature 0.6 is far smaller."""


@dataclass(frozen=True)
class Acceptance:
    """By position 1…k: `overlap` per drafted token given those before it were accepted, `rounds[k-1][i]` the share of
    rounds at fixed depth k that accept position i+1; `tokens` counted."""

    overlap: tuple[float, ...]
    rounds: tuple[tuple[float, ...], ...]
    tokens: int


class Drafts(Protocol):
    """A head in training: states of whole rows, and the logits made of a depth's."""

    def states(self, tokens: Ints, taps: npt.NDArray[np.float16], depths: int) -> list[Array]: ...

    def logits(self, states: Array, depth: int) -> Array: ...


def measure(
    head: Drafts, draft_vocab: Ints, shards: Sequence[Shard], depths: int, top_p: float, rows: int = 8
) -> Acceptance:
    """Runs the head over every row of `shards`, all of one length, `rows` at a time."""
    parts = [_cut(shard, begin, rows) for shard in shards for begin in range(0, len(shard.tokens), rows)]
    along = [_along(head, draft_vocab, part, depths, top_p) for part in parts]
    overlap = np.concatenate([found for found, _ in along])
    take = np.concatenate([found for _, found in along])
    said = np.concatenate([np.asarray(shard.origin) == GENERATED for shard in shards])
    means = tuple(float(overlap[:, :, depth][spoken_after(said, depth)].mean()) for depth in range(depths))
    rounds = tuple(walk_rounds(overlap, take, said, depth) for depth in range(1, depths + 1))
    return Acceptance(means, rounds, int(spoken_after(said, 0).sum()))


def _cut(shard: Shard, begin: int, rows: int) -> Shard:
    return Shard(**{name: np.asarray(getattr(shard, name)[begin : begin + rows]) for name in FIELDS})


def spoken_after(said: npt.NDArray[np.bool_], depth: int) -> npt.NDArray[np.bool_]:
    """Pairs i whose depth's draft stands where the target spoke: token i + depth + 2."""
    shifted = np.zeros_like(said)
    shifted[:, : -(depth + 2)] = said[:, depth + 2 :]
    return shifted


def walk_rounds(overlap: Floats, take: Floats, said: npt.NDArray[np.bool_], depth: int) -> tuple[float, ...]:
    """Share of rounds at fixed `depth` that accept each position, from overlap and take [B, S, ≥ depth].

    `take[b, i, j]` is the chance that the recorded token is accepted as draft j+1 of the round at pair i. The chance
    that a round begins at pair i is propagated along the text; rounds that leave the spoken part do not count.
    """
    count, length = overlap.shape[:2]
    begins = np.zeros((count, length + depth + 2))
    whole = np.ones((count, length), bool)
    for j in range(depth):
        whole &= spoken_after(said, j)
    first = np.argmax(whole, axis=1)
    begins[np.arange(count), first] = whole.any(axis=1)
    accepted, rounds = np.zeros(depth), 0.0
    for place in range(length):
        here = begins[:, place] * whole[:, place]
        if not here.any():
            continue
        rounds += here.sum()
        alive = here.copy()
        for j in range(depth):
            accepted[j] += (alive * overlap[:, place, j]).sum()
            stopped = alive * (1 - take[:, place, j])
            begins[:, place + j + 1] += stopped
            alive = alive * take[:, place, j]
        begins[:, place + depth + 1] += alive
    return tuple(float(value / max(rounds, 1e-9)) for value in accepted)


def _along(head: Drafts, draft_vocab: Ints, part: Shard, depths: int, top_p: float) -> tuple[Floats, Floats]:
    tokens = part.tokens.astype(np.int32)
    pairs = tokens.shape[1] - depths
    overlap = np.zeros((*tokens.shape, depths), np.float32)
    take = np.zeros_like(overlap)
    target = nucleus(soften(part.top_logprobs, np.asarray(part.logsumexp)), top_p)
    following = np.pad(tokens, ((0, 0), (0, 1)))
    for depth, states in enumerate(head.states(tokens, np.asarray(part.taps[:, :pairs]), depths)):
        ids, q = filtered(_floats(head.logits(states, depth + 1)), draft_vocab, top_p)
        span = slice(depth + 1, depth + 1 + pairs)
        drafted = following[:, depth + 2 : depth + 2 + pairs]
        shared, chance = compare(part.top_ids[:, span], target[:, span], ids, q, drafted)
        overlap[:, :pairs, depth], take[:, :pairs, depth] = shared, chance
    return overlap, take


def _floats(array: Array) -> Floats:
    return np.array(array.astype(mx.float32))


def filtered(logits: Floats, draft_vocab: Ints, top_p: float) -> tuple[Ints, Floats]:
    """Head logits [..., D] to the ids and probabilities [..., KEPT] the sampler draws from."""
    kept = min(KEPT, logits.shape[-1])
    places = np.argpartition(-logits, kept - 1, axis=-1)[..., :kept]
    values = np.take_along_axis(logits, places, axis=-1)
    order = np.argsort(-values, axis=-1, kind="stable")
    places, values = np.take_along_axis(places, order, axis=-1), np.take_along_axis(values, order, axis=-1)
    weights = np.exp((values - values[..., :1]) / SOFT)
    total = np.exp((logits - values[..., :1]) / SOFT).sum(axis=-1, keepdims=True)
    return draft_vocab[places], nucleus(weights / total, top_p)


def compare(
    p_ids: npt.NDArray[np.generic], p: Floats, q_ids: Ints, q: Floats, tokens: Ints
) -> tuple[Floats, Floats]:
    """Σ min(p, q) [...] and min(1, q/p) of each recorded token [...], the chance that it was an accepted draft."""
    same = p_ids[..., :, None].astype(np.int32) == q_ids[..., None, :]
    q_there = (same * q[..., None, :]).sum(axis=-1)
    shared = np.minimum(p, q_there).sum(axis=-1)
    hit = p_ids.astype(np.int32) == tokens[..., None]
    p_token, q_token = (hit * p).sum(axis=-1), (hit * q_there).sum(axis=-1)
    chance = np.where(p_token > 0, np.minimum(p_token, q_token) / np.maximum(p_token, 1e-12), 0)
    return shared.astype(np.float32), chance.astype(np.float32)
