"""A Gemma 4 assistant from its equations, in float64, one query at a time. Nothing but numpy is imported.

Per draft: x = W_pre [e·√Hb ; h], four blocks whose queries attend to the target's keys and values of the block's kind,
r = norm(x), logits = r Eᵀ over the assistant's own table (ordered: only the best clusters' tokens), next h = W_post r.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
KeysValues = tuple[np.ndarray, np.ndarray]


def rms(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rotate(q: np.ndarray, position: int, theta: float, share: float) -> np.ndarray:
    """Halves rotated against each other; of the frequencies only the first `share` turn, over the whole width."""
    dim = q.shape[-1]
    half, turning = dim // 2, int(dim * share) // 2
    angle = np.zeros(half)
    angle[:turning] = position * theta ** (-2.0 * np.arange(turning) / dim)
    left, right = q[..., :half], q[..., half:]
    return np.concatenate(
        [left * np.cos(angle) - right * np.sin(angle), right * np.cos(angle) + left * np.sin(angle)], axis=-1
    )


class Assistant:
    """`weights` by published name, `config` the assistant's own with its text config laid over it."""

    def __init__(self, weights: Arrays, config: Mapping[str, Any]) -> None:
        self.w = {name: np.asarray(w) for name, w in weights.items()}
        self.w = {n: w.astype(np.float64) if w.dtype.kind == "f" else w for n, w in self.w.items()}
        self.c = config

    def step(
        self, embedded: np.ndarray, hidden: np.ndarray, held: Mapping[str, KeysValues], position: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The target's bare embedding of the token and a hidden state [Hb], and all keys and values [heads, S, dim]
        of the target's slots 0…S−1 by kind; gives logits [V] and the next hidden state [Hb]."""
        scaled = embedded * np.sqrt(self.c["backbone_hidden_size"])
        x = self.w["pre_projection.weight"] @ np.concatenate([scaled, hidden])
        for layer, kind in enumerate(self.c["layer_types"]):
            x = self._block(f"model.layers.{layer}.", kind, x, held[kind], position)
        r = rms(x, self.w["model.norm.weight"], self.c["rms_norm_eps"])
        return self._logits(r), self.w["post_projection.weight"] @ r

    def _block(self, at: str, kind: str, x: np.ndarray, held: KeysValues, position: int) -> np.ndarray:
        def norm(name: str, value: np.ndarray) -> np.ndarray:
            return rms(value, self.w[f"{at}{name}.weight"], self.c["rms_norm_eps"])

        def linear(name: str, value: np.ndarray) -> np.ndarray:
            return self.w[f"{at}{name}.weight"] @ value

        heads = self.c["num_attention_heads"]
        q = linear("self_attn.q_proj", norm("input_layernorm", x)).reshape(heads, -1)
        q = self._rotated(norm("self_attn.q_norm", q), kind, position)
        attended = linear("self_attn.o_proj", self._attend(q, kind, held, position).reshape(-1))
        x = x + norm("post_attention_layernorm", attended)
        inner = norm("pre_feedforward_layernorm", x)
        gated = gelu(linear("mlp.gate_proj", inner)) * linear("mlp.up_proj", inner)
        x = x + norm("post_feedforward_layernorm", linear("mlp.down_proj", gated))
        return x * self.w[f"{at}layer_scalar"]

    def _rotated(self, q: np.ndarray, kind: str, position: int) -> np.ndarray:
        rope = self.c["rope_parameters"][kind]
        share = rope["partial_rotary_factor"] if rope["rope_type"] == "proportional" else 1.0
        return rotate(q, position, rope["rope_theta"], share)

    def _attend(self, q: np.ndarray, kind: str, held: KeysValues, position: int) -> np.ndarray:
        """Unscaled scores; a sliding layer sees the slots less than a window away."""
        keys, values = held
        slots = np.arange(keys.shape[1])
        near = slots > position - self.c["sliding_window"] if kind == "sliding_attention" else slots >= 0
        group = len(q) // len(keys)
        out = []
        for head, query in enumerate(q):
            scores = np.where(near, keys[head // group].astype(np.float64) @ query, -np.inf)
            share = np.exp(scores - scores.max())
            out.append((share / share.sum()) @ values[head // group].astype(np.float64))
        return np.stack(out)

    def _logits(self, r: np.ndarray) -> np.ndarray:
        table = self.w["model.embed_tokens.weight"]
        if not self.c["use_ordered_embeddings"]:
            return table @ r
        clusters = self.w["masked_embedding.token_ordering"].reshape(self.c["num_centroids"], -1)
        best = np.argsort(self.w["masked_embedding.centroids.weight"] @ r)[::-1]
        chosen = clusters[best[: self.c["centroid_intermediate_top_k"]]].reshape(-1)
        logits = np.full(len(table), (table[chosen] @ r).min() - 1)
        logits[chosen] = table[chosen] @ r
        return logits
