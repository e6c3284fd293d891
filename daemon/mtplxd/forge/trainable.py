"""What of a head is trained, and what came of it: all its weights, or low-rank additions to its linears.

Owns which parameters never are: those without a gradient, packed ones, and matrices with a row for each token.
"""

from __future__ import annotations

import re
from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.forge.lora import add_low_rank, low_ranks
from mtplxd.forge.train_plan import Method
from mtplxd.platform.mlx import Array, mx, tree

LORA_SCALE = 2.0
_NEVER = re.compile(r"(?:^|\.)(?:e_score_correction_bias|router_bias|_[^.]*)$")
"""Biases that only order experts have no gradient; what begins with an underscore is no parameter."""
_BY_TOKEN = re.compile(r"^layers\.\d+\.(?:embed_tokens|output)\.")


def prepare(module: Any, method: Method, rank: int, seed: int) -> None:
    """Makes a frozen head's module ready for training, in float32."""
    module.set_dtype(mx.float32)
    module.train()
    if method == "lora":
        add_low_rank(module, rank, LORA_SCALE, seed)
    else:
        _unfreeze(module)
    if not tree.tree_flatten(module.trainable_parameters()):
        raise FailedPrecondition("nothing of this head can be trained this way", method, "use lora")
    mx.eval(module.parameters())


def changed_weights(module: Any, method: Method) -> dict[str, Array]:
    """What training changed, by path in the module as it was before `prepare`, float32."""
    if method == "lora":
        return {f"{path}.weight": low.folded() for path, low in low_ranks(module)}
    return dict(tree.tree_flatten(module.trainable_parameters()))


def _unfreeze(module: Any) -> None:
    module.freeze()
    for path, part in module.named_modules():
        own = [name for name, value in part.items() if _is_trained(f"{path}.{name}".lstrip("."), value, part)]
        if own:
            part.unfreeze(recurse=False, keys=own)


def _is_trained(path: str, value: Any, part: Any) -> bool:
    arrays = value if isinstance(value, list) else [value]
    return (
        bool(arrays)
        and all(isinstance(array, mx.array) and mx.issubdtype(array.dtype, mx.floating) for array in arrays)
        and "scales" not in part
        and not _NEVER.search(path)
        and not _BY_TOKEN.match(path)
    )
