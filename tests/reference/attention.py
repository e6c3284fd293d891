"""Grouped-query attention from its equations, in numpy alone: a whole sequence [L, H] at once, no cache.

Weights are float arrays by the names of the published checkpoints, `q_proj` to `o_proj`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Weights = Mapping[str, Floats]


@dataclass(frozen=True)
class Grouped:
    """Sizes and switches of one layer: `theta` None rotates nothing, else the first `rotated` dimensions of each head,
    as `pairs` (2i, 2i+1) or as halves. `window` None sees all the past. `offset` is what stored norm weights lack."""

    heads: int
    groups: int
    dim: int
    theta: float | None = 10000.0
    rotated: int | None = None
    pairs: bool = False
    window: int | None = None
    eps: float = 1e-6
    offset: float = 0.0


def attend(x: Floats, weights: Weights, layer: Grouped) -> Floats:
    """The layer's output [L, H] for its normed input x [L, H]."""
    found = mix(*project(x, weights, layer), layer)
    return linear(found.reshape(len(x), -1), weights, "o_proj")


def project(x: Floats, weights: Weights, layer: Grouped) -> tuple[Floats, Floats, Floats]:
    """Queries [L, n, d], keys and values [L, g, d], normed where there are norms, rotated."""
    q, k, v = (
        linear(x, weights, name).reshape(len(x), -1, layer.dim) for name in ("q_proj", "k_proj", "v_proj")
    )
    return (
        turned(normed(q, weights, "q_norm", layer), layer),
        turned(normed(k, weights, "k_norm", layer), layer),
        v,
    )


def normed(x: Floats, weights: Weights, name: str, layer: Grouped) -> Floats:
    if f"{name}.weight" not in weights:
        return x
    return rms_norm(x, weights[f"{name}.weight"] + layer.offset, layer.eps)


def mix(q: Floats, k: Floats, v: Floats, layer: Grouped) -> Floats:
    """softmax(q kᵀ / √d) v for each head [L, n, d], a key for every `heads / groups` queries."""
    length, share = len(q), layer.heads // layer.groups
    k, v = (np.repeat(part, share, axis=1) for part in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(layer.dim)
    apart = np.arange(length)[:, None] - np.arange(length)
    seen = (apart >= 0) & (apart < (layer.window or length))
    return np.einsum("hij,jhd->ihd", softmax(np.where(seen, scores, -np.inf)), v)


def turned(x: Floats, layer: Grouped) -> Floats:
    """Rotary embedding of x [L, n, d]: dimension pair i turns by position · theta^(−2i/rotated)."""
    if layer.theta is None:
        return x
    width = layer.rotated or layer.dim
    angles = np.arange(len(x))[:, None, None] * layer.theta ** (-np.arange(0, width, 2) / width)
    cos, sin = np.cos(angles), np.sin(angles)
    turning, still = x[..., :width], x[..., width:]
    if layer.pairs:
        one, two = turning[..., ::2], turning[..., 1::2]
        both = np.stack([one * cos - two * sin, one * sin + two * cos], axis=-1).reshape(turning.shape)
    else:
        one, two = np.split(turning, 2, axis=-1)
        both = np.concatenate([one * cos - two * sin, one * sin + two * cos], axis=-1)
    return np.concatenate([both, still], axis=-1)


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """x / rms(x) · weight over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def softmax(scores: Floats) -> Floats:
    """Over the last axis."""
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def linear(x: Floats, weights: Weights, name: str) -> Floats:
    """x Wᵀ, plus a bias where there is one."""
    made = x @ weights[f"{name}.weight"].T
    return made + weights[f"{name}.bias"] if f"{name}.bias" in weights else made


def within(weights: Weights, prefix: str) -> dict[str, Floats]:
    """The weights whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}
