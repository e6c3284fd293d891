"""The body's half of loading: mlx-lm's class for a pack, filled with the body's tensors alone, refused where it cannot
run here.

mlx-lm's loader reads whatever files match a pattern. Here the class is given exactly the body's tensors, wherever they
lie, before its own `sanitize` sees them.
Says nothing of the head; composing both is `load`'s.
"""

from __future__ import annotations

import importlib.util
import re
from typing import Any

from mtplxd.errors import DataLoss, FailedPrecondition, MtplxError
from mtplxd.families.anatomy import find_anatomy
from mtplxd.families.body import Body
from mtplxd.families.body_check import check_body, stock_logits
from mtplxd.families.body_tensors import differences, read_body, sanitise, unlike
from mtplxd.families.caches import make_caches
from mtplxd.families.foreign import blamed_on_class, blamed_on_config, reason_of
from mtplxd.families.latent import absorb_latent
from mtplxd.families.protocols import Tap
from mtplxd.families.recurrence import wrap_recurrences
from mtplxd.families.rows_check import why_apart
from mtplxd.families.settling import Settler
from mtplxd.packs.contents import AGAIN
from mtplxd.packs.pack import Pack
from mtplxd.platform.mlx import Array, tree


def load_body(pack: Pack) -> Any:
    """The model with weights as stored, not yet read from disk.

    Raises DataLoss for damaged files, FailedPrecondition for a body this build cannot run.
    """
    return load_body_as_packed(pack)[0]


def load_body_as_packed(pack: Pack) -> tuple[Any, dict[str, Any]]:
    """As `load_body`, and mlx-lm's word `quantization` for how its matrices are packed; empty for floats."""
    from mlx_lm.utils import load_model

    stock = _class_of(pack)
    try:
        model, config = load_model(
            pack.model_path,
            lazy=True,
            strict=False,
            get_model_classes=lambda config: _filled_by(pack, config),
        )
    except MtplxError:
        raise
    except Exception as error:  # a config that makes no model makes foreign code raise what it likes
        raise DataLoss("cannot load the body", f"{pack.name}: {reason_of(error)}", AGAIN) from error
    model.__class__ = stock
    find_anatomy(model)
    make_caches(model, 1)
    return model, config.get("quantization") or {}


def settle_body(model: Any, tensors: list[tuple[str, Array]], settler: Settler) -> int:
    """Empties the list of its parameters into the model, a tensor as stored is gone before the next one is read;
    gives the model's bytes."""
    while tensors:
        name, array = tensors.pop()
        model.load_weights([(name, settler.settle(array))], strict=False)
    return sum(array.nbytes for _, array in tree.tree_flatten(model.parameters()))


def open_body(model: Any, taps: tuple[Tap, ...]) -> tuple[Body, list[str]]:
    """The body of a model in memory, whose rows share forwards where they may, and what of it is slower than it should
    be.

    Raises FailedPrecondition where it does not compute what mlx-lm's class does, DataLoss where that computes nothing.
    """
    with blamed_on_config("the body cannot compute as its config says"):
        expected = stock_logits(model)
    troubles = [*wrap_recurrences(model), *absorb_latent(model)]
    body = Body(model, taps)
    with blamed_on_class(model):
        behind = check_body(body, expected)
    body.apart = why_apart(body, behind, expected)
    return body, troubles


def _class_of(pack: Pack) -> Any:
    """mlx-lm's class for this body. Refuses one that it has none for, or that would run code from its own files."""
    from mlx_lm.utils import MODEL_REMAPPING, _get_classes

    name = MODEL_REMAPPING.get(pack.model_type, pack.model_type)
    known = re.fullmatch(r"[\w-]+", name) and importlib.util.find_spec(f"mlx_lm.models.{name}") is not None
    if "model_file" in pack.config:
        raise FailedPrecondition(
            "this pack asks to run code of its own", pack.config["model_file"], "use one that does not"
        )
    try:
        return _get_classes(pack.config)[0] if known else _unsupported(pack)
    except AttributeError:
        return _unsupported(pack)


def _unsupported(pack: Pack) -> Any:
    raise FailedPrecondition("this body's family is not supported", pack.model_type, "see `mtplx ls`")


def _filled_by(pack: Pack, config: dict[str, Any]) -> tuple[type, type]:
    """mlx-lm's classes for a config, the model's one taking the pack's tensors instead of those it is handed."""
    from mlx_lm.utils import _get_classes

    stock, args = _get_classes(config)

    def sanitize(self: Any, _weights: dict[str, Array]) -> dict[str, Array]:
        return sanitise(stock, self, read_body(pack))

    def load_weights(self: Any, weights: list[tuple[str, Array]], **_: Any) -> Any:
        own, given = dict(tree.tree_flatten(self.parameters())), dict(weights)
        if words := differences(own, given) or unlike(own, given):
            raise DataLoss("the body's tensors are not its class's", f"{pack.name}: {words}", AGAIN)
        return stock.load_weights(self, weights, strict=True)

    return type(stock.__name__, (stock,), {"sanitize": sanitize, "load_weights": load_weights}), args
