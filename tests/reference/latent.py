"""Multi-head latent attention from its equations (DeepSeek-V2, arXiv 2405.04434, §2.1), in numpy alone.

Keys and values are spread out for every head, as the equations have them: k = [W_UK c ; rope(k_r)], v = W_UV c, with
c = norm(W_DKV x). Weights are float arrays by the names of the published checkpoints, `kv_b_proj` in one piece.
A whole sequence [L, H] at once: no cache, so nothing can be stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Latent:
    """Sizes and switches of one layer: `theta` None rotates nothing, `top_k` None attends to everything.

    The indexer rotates `index_pairs` of dimensions or halves; slots from `shared_after` on attend to what the indexer
    chose for the slot before it.
    """

    heads: int
    rank: int
    nope: int
    rope: int
    value: int
    theta: float | None = 10000.0
    eps: float = 1e-6
    query_norm_eps: float = 1e-6
    query_factor: float = 1.0
    latent_factor: float = 1.0
    position_factors: Floats | None = None
    gated: bool = False
    top_k: int | None = None
    index_heads: int = 0
    index_pairs: bool = True
    shared_after: int | None = None
    output: str = "o_proj"


def attend_latent(x: Floats, weights: Mapping[str, Floats], layer: Latent) -> Floats:
    """The layer's output [L, H] for its normed input x [L, H]."""
    length = len(x)
    low, q = _queries(x, weights, layer)
    compressed = _linear(x, weights, "kv_a_proj_with_mqa")
    latents = rms_norm(compressed[:, : layer.rank], weights["kv_a_layernorm.weight"], layer.eps)
    latents = latents * layer.latent_factor
    shared = _turn(compressed[:, layer.rank :], layer)
    spread = latents @ weights["kv_b_proj.weight"].T
    spread = spread.reshape(length, layer.heads, layer.nope + layer.value)
    k = np.concatenate([spread[..., : layer.nope], np.repeat(shared[:, None], layer.heads, axis=1)], axis=-1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(layer.nope + layer.rope)
    scores = np.where(_visible(x, low, weights, layer), scores, -np.inf)
    found = np.einsum("hij,jhd->ihd", softmax(scores), spread[..., layer.nope :])
    return _linear(_gated(x, found, weights, layer).reshape(length, -1), weights, layer.output)


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """x / rms(x) · weight over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def softmax(scores: Floats) -> Floats:
    """Over the last axis."""
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def rotate_pairs(x: Floats, theta: float) -> Floats:
    """Rotary embedding of x [L, ..., R]: dimensions 2i and 2i+1 turn by position · theta^(−2i/R)."""
    length, size = len(x), x.shape[-1]
    angles = np.arange(length)[:, None] * theta ** (-np.arange(0, size, 2) / size)
    angles = angles.reshape(length, *[1] * (x.ndim - 2), size // 2)
    even, odd = x[..., ::2], x[..., 1::2]
    turned = np.stack(
        [even * np.cos(angles) - odd * np.sin(angles), even * np.sin(angles) + odd * np.cos(angles)], axis=-1
    )
    return turned.reshape(x.shape)


def _queries(x: Floats, weights: Mapping[str, Floats], layer: Latent) -> tuple[Floats, Floats]:
    """The low-rank query, or x where there is none, and the queries [L, n, nope + rope]."""
    if "q_a_proj.weight" in weights:
        low = rms_norm(_linear(x, weights, "q_a_proj"), weights["q_a_layernorm.weight"], layer.query_norm_eps)
        q = _linear(low, weights, "q_b_proj")
    else:
        low, q = x, _linear(x, weights, "q_proj")
    q = q.reshape(len(x), layer.heads, layer.nope + layer.rope) * layer.query_factor
    q = np.concatenate([q[..., : layer.nope], _turn(q[..., layer.nope :], layer)], axis=-1)
    return low, q if layer.position_factors is None else q * layer.position_factors[:, None, None]


def _visible(x: Floats, low: Floats, weights: Mapping[str, Floats], layer: Latent) -> NDArray[np.bool_]:
    """Bool [L, L]: the past, and of it the `top_k` slots that the lightning indexer scores highest (V3.2, §2.1)."""
    length = len(x)
    past = np.tril(np.ones((length, length), bool))
    if layer.top_k is None or length <= layer.top_k:
        return past
    q = _linear(low, weights, "indexer.wq_b").reshape(length, layer.index_heads, -1)
    k = _layer_norm(
        _linear(x, weights, "indexer.wk"), weights["indexer.k_norm.weight"], weights["indexer.k_norm.bias"]
    )
    q, k = _turn_begin(q, layer), _turn_begin(k, layer)
    importance = _linear(x, weights, "indexer.weights_proj")
    scores = np.einsum("ih,ihj->ij", importance, np.maximum(np.einsum("ihd,jd->ihj", q, k), 0))
    scores = np.where(past, scores, -np.inf)
    least = np.sort(scores, axis=-1)[:, -layer.top_k][:, None]
    chosen = past & (scores >= least)
    if layer.shared_after is not None:
        chosen[layer.shared_after :] = chosen[layer.shared_after - 1]
    return chosen


def _gated(x: Floats, found: Floats, weights: Mapping[str, Floats], layer: Latent) -> Floats:
    if not layer.gated:
        return found
    gate = 1 / (1 + np.exp(-_linear(x, weights, "g_proj")))
    return found * gate.reshape(len(x), layer.heads, -1)


def _turn(x: Floats, layer: Latent) -> Floats:
    return x if layer.theta is None else rotate_pairs(x, layer.theta)


def _turn_begin(x: Floats, layer: Latent) -> Floats:
    """The indexer rotates the first dimensions of its own."""
    turning = x[..., : layer.rope]
    if layer.index_pairs or layer.theta is None:
        turned = _turn(turning, layer)
    else:
        turned = _back(_turn(_interleaved(turning), layer))
    return np.concatenate([turned, x[..., layer.rope :]], axis=-1)


def _interleaved(x: Floats) -> Floats:
    """Halves side by side as pairs."""
    return np.stack(np.split(x, 2, axis=-1), axis=-1).reshape(x.shape)


def _back(x: Floats) -> Floats:
    return np.concatenate([x[..., ::2], x[..., 1::2]], axis=-1)


def _layer_norm(x: Floats, weight: Floats, bias: Floats, eps: float = 1e-5) -> Floats:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps) * weight + bias


def _linear(x: Floats, weights: Mapping[str, Floats], name: str) -> Floats:
    made = x @ weights[f"{name}.weight"].T
    return made + weights[f"{name}.bias"] if f"{name}.bias" in weights else made
