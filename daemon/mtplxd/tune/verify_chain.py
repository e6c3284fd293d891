"""Temperature and top-p once more, written plainly in float64, to check the engine's chain against. Imports no MLX.

Also says which ids would be in or out of a law whose logits are only known up to a noise: two forwards of different
shapes give slightly different numbers, and which of them a token was drawn from is not recorded. V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Floats = np.ndarray

ROUNDING = 4e-6
"""What float32 sums and quotients of a law may be off by, beside the noise of its logits; a mass and a log of one."""


class Ranked(NamedTuple):
    """A law in falling order, equal logits by ascending id: ids [V] and, in their order, masses [V]."""

    ids: np.ndarray
    masses: Floats


class Bounds(NamedTuple):
    """Of each id, bool [V]: whether it may have any mass, and whether it must, wherever the true logits are."""

    may: np.ndarray
    must: np.ndarray


def rank_law(logits: Floats, temperature: float, top_p: float, ids: np.ndarray | None = None) -> Ranked:
    """The law of raw logits [V]. `ids` is their falling order where it is known; a temperature changes none of it."""
    if ids is None:
        ids = np.argsort(-logits.astype(np.float64), kind="stable")
    masses = _softmax(logits[ids], temperature)
    if top_p < 1.0:
        before = np.cumsum(masses) - masses
        masses = np.where(before < top_p, masses, 0.0)
        masses /= masses.sum()
    return Ranked(ids, masses)


def bound_law(logits: Floats, temperature: float, top_p: float, slack: float) -> Bounds:
    """Which ids top-p keeps when the gap of any two of the logits [V] may be off by `slack`.

    What ranks before x has the mass M; its odds M / (1 − M) change by a factor of e^(± slack / temperature) at most,
    and ids nearer to x than the slack may stand on either side of it. x may be kept if the least M is below top-p, and
    must be if the most is.
    """
    if top_p >= 1.0:
        everything = np.ones(logits.shape, np.bool_)
        return Bounds(everything, everything)
    ids = np.argsort(-logits.astype(np.float64), kind="stable")
    slack = slack / temperature + ROUNDING
    values = -logits[ids].astype(np.float64) / temperature  # rising
    sums = np.concatenate([[0.0], np.cumsum(_softmax(logits[ids], temperature))])
    own = np.diff(sums)
    least = sums[np.searchsorted(values, values - slack, side="left")]
    most = sums[np.searchsorted(values, values + slack, side="right")] - own
    kept_at_best = _with_odds(least, np.exp(-slack)) - ROUNDING < top_p
    kept_at_worst = _with_odds(most, np.exp(slack)) + ROUNDING < top_p
    may, must = np.empty(ids.shape, np.bool_), np.empty(ids.shape, np.bool_)
    may[ids], must[ids] = kept_at_best, kept_at_worst
    return Bounds(may, must)


def _softmax(logits: Floats, temperature: float) -> Floats:
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    return np.asarray(weights / weights.sum())


def _with_odds(mass: Floats, factor: float) -> Floats:
    """A mass whose odds are multiplied."""
    rest = np.clip(1.0 - mass, 0.0, 1.0)
    return np.asarray(mass * factor / (mass * factor + rest))
