"""MLPs and routed experts from their equations, in numpy alone, one token of [L, H] at a time.

Weights are float arrays by the names of the published checkpoints, experts numbered or fused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from reference.attention import Floats, Weights, linear, sigmoid, softmax, within

Router = Callable[[Floats], tuple[Floats, Floats]]
"""Takes a token's router logits [E]; gives the chosen experts and their shares."""


def silu(x: Floats) -> Floats:
    return x * sigmoid(x)


def gated_mlp(x: Floats, weights: Weights) -> Floats:
    """down(silu(gate x) · up x)."""
    return linear(silu(linear(x, weights, "gate_proj")) * linear(x, weights, "up_proj"), weights, "down_proj")


def squared_mlp(x: Floats, weights: Weights) -> Floats:
    """down(relu(up x)²)."""
    return linear(np.maximum(linear(x, weights, "up_proj"), 0) ** 2, weights, "down_proj")


def mix_experts(
    x: Floats,
    weights: Weights,
    route: Router,
    mlp: Callable[[Floats, Weights], Floats] = gated_mlp,
    seen: Floats | None = None,
) -> Floats:
    """Σ share_e · expert_e(seen) over the experts chosen for each token x; router in `gate`, experts in `experts.`

    The experts see x itself where nothing else is given.
    """
    experts = expert_weights(within(weights, "experts."))
    rows = []
    for token, inner in zip(x, x if seen is None else seen, strict=True):
        chosen, shares = route(weights["gate.weight"] @ token)
        rows.append(sum(share * mlp(inner, experts[e]) for e, share in zip(chosen, shares, strict=True)))
    return np.stack(rows)


def expert_weights(weights: Weights) -> list[Weights]:
    """Each expert's own weights. Fused: `gate_up_proj` [E, 2I, H], gate first, and `down_proj` [E, H, I]."""
    if "gate_up_proj" not in weights:
        count = 1 + max(int(name.split(".")[0]) for name in weights)
        return [within(weights, f"{e}.") for e in range(count)]
    both, down = weights["gate_up_proj"], weights["down_proj"]
    half = both.shape[1] // 2
    return [
        {"gate_proj.weight": both[e, :half], "up_proj.weight": both[e, half:], "down_proj.weight": down[e]}
        for e in range(len(both))
    ]


def top_softmax(count: int, *, normalise: bool) -> Router:
    """The `count` likeliest experts, with their probabilities, which then add up to 1 where `normalise`."""

    def route(logits: Floats) -> tuple[Floats, Floats]:
        law = softmax(logits)
        chosen = np.argsort(-law)[:count]
        return chosen, law[chosen] / law[chosen].sum() if normalise else law[chosen]

    return route


def top_sigmoid(
    count: int, bias: Floats, scale: float, *, groups: int = 1, kept: int = 1, normalise: bool = True
) -> Router:
    """DeepSeek-V3's: chosen by sigmoid + bias, shares from the sigmoids alone; only the `kept` groups whose two best
    experts add up highest take part."""

    def route(logits: Floats) -> tuple[Floats, Floats]:
        scores = sigmoid(logits)
        order = (scores + bias).reshape(groups, -1)
        if groups > 1:
            worst = np.argsort(-np.sort(order, axis=1)[:, -2:].sum(axis=1))[kept:]
            order[worst] = 0.0
        chosen = np.argsort(-order.reshape(-1))[:count]
        shares = scores[chosen] / scores[chosen].sum() if normalise else scores[chosen]
        return chosen, shares * scale

    return route
