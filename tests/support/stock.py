"""Greedy text by mlx-lm's own class on its own caches, one token at a time: what every other way must give."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx, tree

CLOSEST = 1e-4
"""A smaller gap between the two best logits would make the text a matter of rounding."""


def load_stock(folder: Path) -> Any:
    """The body of a checkpoint, or of a pair's target, in float32; the head's tensors are taken out before."""
    from mlx_lm.utils import _get_classes, load_model

    pack = read_pack(folder)

    def classes(config: dict[str, Any]) -> tuple[Any, Any]:
        stock, args = _get_classes(copy.deepcopy(config))

        class WithoutHead(stock):  # type: ignore[misc]
            def sanitize(self, weights: dict[str, Any]) -> dict[str, Any]:
                own = {name: array for name, array in weights.items() if name not in pack.head_tensors}
                return super().sanitize(own) if hasattr(stock, "sanitize") else own

        return WithoutHead, args

    model, _ = load_model(pack.model_path, lazy=True, get_model_classes=classes)
    floats = [(name, array.astype(mx.float32)) for name, array in tree.tree_flatten(model.parameters())]
    model.load_weights(floats)
    return model


def greedy_text(model: Any, prompt: list[int], count: int) -> list[int]:
    """The prompt's `count` greedy tokens. Fails where two tokens are too close for a comparison of texts."""
    from mlx_lm.models.cache import make_prompt_cache

    cache, made = make_prompt_cache(model), list[int]()
    logits = model(mx.array([prompt]), cache=cache)[0, -1]
    while len(made) < count:
        second, first = sorted(mx.topk(logits, 2).tolist())
        assert first - second > CLOSEST, f"token {len(made)} is a matter of {first - second:.1e}"
        made.append(int(mx.argmax(logits).item()))
        logits = model(mx.array([made[-1:]]), cache=cache)[0, -1]
    return made
