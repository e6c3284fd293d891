"""The body's half of loading: mlx-lm's class for a pack with its weights, refused where it cannot be run here.

Says nothing of the head; composing both is `load`'s.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from mtplxd.errors import DataLoss, FailedPrecondition
from mtplxd.families.settling import Settler
from mtplxd.packs.pack import Pack
from mtplxd.platform.mlx import Array, tree


def load_body(pack: Pack) -> Any:
    """The model with weights as stored, not yet read from disk.

    Raises DataLoss for damaged files, FailedPrecondition for a body this build cannot run.
    """
    from mlx_lm.utils import load_model

    _check_class(pack)
    try:
        model, _ = load_model(pack.model_path, lazy=True, strict=True)
    except Exception as error:  # a config that makes no model makes foreign code raise what it likes
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataLoss(
            "cannot load the body", f"{pack.name}: {reason}", "pull or build the pack again"
        ) from error
    if not _is_driven(model):
        raise FailedPrecondition("this body's family is not supported", pack.model_type, "see `mtplx ls`")
    return model


def settle_body(model: Any, tensors: list[tuple[str, Array]], settler: Settler) -> int:
    """Empties the list of its parameters into the model, a tensor as stored is gone before the next one is read;
    gives the model's bytes."""
    while tensors:
        name, array = tensors.pop()
        model.load_weights([(name, settler.settle(array))], strict=False)
    return sum(array.nbytes for _, array in tree.tree_flatten(model.parameters()))


def _is_driven(model: Any) -> bool:
    """Whether `Body` finds its parts, and every layer keeps plain keys and values: no state that cannot go back."""
    from mlx_lm.models.cache import KVCache, make_prompt_cache

    inner = getattr(model, "model", None)
    if not hasattr(inner, "embed_tokens") or not hasattr(model.args, "vocab_size"):
        return False
    return all(type(layer) is KVCache for layer in make_prompt_cache(model))


def _check_class(pack: Pack) -> None:
    """Refuses a body that mlx-lm has no class for, or that would run code from its own files."""
    from mlx_lm.utils import MODEL_REMAPPING

    name = MODEL_REMAPPING.get(pack.model_type, pack.model_type)
    if not name.isidentifier() or importlib.util.find_spec(f"mlx_lm.models.{name}") is None:
        raise FailedPrecondition("this body's family is not supported", pack.model_type, "see `mtplx ls`")
    if "model_file" in pack.config:
        raise FailedPrecondition(
            "this pack asks to run code of its own", pack.config["model_file"], "use one that does not"
        )
