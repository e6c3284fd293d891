"""The head before training: a linear prediction of the body's next hidden state, then a quiet block.

fc comes from ridge regression on recorded rows: from what the head joins at a pair to the body's final hidden state one
token later, so that the untrained head already drafts better than chance. The block's outputs start small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from mtplxd.families.adapter import AdapterModule, build_module
from mtplxd.families.body import Body
from mtplxd.forge.shards import Shard
from mtplxd.packs.layouts.adapter import BlockSizes
from mtplxd.platform.mlx import mx, tree

Floats = npt.NDArray[np.float32]
QUIET = 0.05
"""What the block's two output matrices are multiplied by."""
RIDGE = 1e-3
EPS = 1e-5


def begin_module(
    body: Body, taps: int, mlp_width: int, fc: Floats, sizes: BlockSizes | None = None, seed: int = 0
) -> AdapterModule:
    """An AdapterModule for a body. Its block is the body's last one, of whose MLP the first units are copied where the
    head's is narrower; a block of `sizes` has nothing to copy and is drawn from `seed`."""
    module = build_module(body.model, taps, mlp_width, sizes)
    block = _drawn(module, seed) if sizes else _copied(body.model.layers[-1], mlp_width)
    weights = {f"layers.0.{name}": array for name, array in block.items()}
    for name in ("layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight"):
        weights[name] = weights[name] * QUIET
    weights["fc.weight"] = mx.array(fc)
    weights["norm.weight"] = body.norm_scale
    module.load_weights([(name, array.astype(mx.float32)) for name, array in weights.items()], strict=False)
    mx.eval(module.parameters())
    return module


def _copied(block: Any, mlp_width: int) -> dict[str, Any]:
    return {name: _narrowed(name, array, mlp_width) for name, array in tree.tree_flatten(block.parameters())}


def _drawn(module: AdapterModule, seed: int) -> dict[str, Any]:
    """Matrices whose outputs have about the size of their inputs; norms stay as they are made, at 1."""
    shapes = {name: array.shape for name, array in tree.tree_flatten(module.layers[0].parameters())}
    names = sorted(name for name, shape in shapes.items() if len(shape) > 1)
    keys = mx.random.split(mx.random.key(seed), len(names))
    return {
        name: mx.random.normal(shapes[name], key=key) * shapes[name][1] ** -0.5
        for name, key in zip(names, keys, strict=True)
    }


def regress_fc(
    shards: Iterable[Shard], embed: Callable[[npt.NDArray[np.int32]], Floats], norm: Floats
) -> Floats:
    """fc [H, (1 + T) · H] that predicts the next final hidden state, divided by the final norm's weights, from normed
    embeddings and taps; the first pair of a row, whose hidden states are unlike all others, is left out."""
    square: npt.NDArray[np.float64] = np.zeros(())
    product: npt.NDArray[np.float64] = np.zeros(())
    for shard in shards:
        taps = np.asarray(shard.taps, np.float32)
        embedded = embed(np.asarray(shard.tokens[:, 2:], np.int32))
        parts = [_normed(embedded), *(_normed(taps[:, 1:-1, tap]) for tap in range(taps.shape[2]))]
        joined = np.concatenate(parts, axis=-1).reshape(-1, len(parts) * taps.shape[-1])
        wanted = (taps[:, 2:, -1] / norm).reshape(len(joined), -1)
        square = square + joined.T.astype(np.float64) @ joined
        product = product + joined.T.astype(np.float64) @ wanted
    ridge = RIDGE * np.trace(square) / len(square) * np.eye(len(square))
    solved: Floats = np.linalg.solve(square + ridge, product).T.astype(np.float32)
    return np.ascontiguousarray(solved)


def _normed(states: Floats) -> Floats:
    scaled: Floats = states / np.sqrt((states**2).mean(axis=-1, keepdims=True) + EPS)
    return scaled


def _narrowed(name: str, array: Any, width: int) -> Any:
    if "gate_proj" in name or "up_proj" in name:
        return array[:width]
    return array[..., :width] if "down_proj" in name else array
