"""Finds a model's recurrent layers and makes them tell how to go back, checked against mlx-lm's own at load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.families.recurrence import gated_delta, kda, lightning, mamba2, selective, short_conv
from mtplxd.families.recurrence.check import check_layer
from mtplxd.families.recurrence.taped import Recorder, derive_taped, tape_layer
from mtplxd.families.recurrence.update import Update
from mtplxd.platform.mlx import nn

OWNERS = "mlx_lm.models."


def wrap_recurrences(model: Any) -> list[str]:
    """Prepares a loaded model's recurrent layers for StateCache; gives what is slower than it should be, and why.

    Raises FailedPrecondition naming the layers of a body whose state this build cannot take back.
    """
    sizes = _state_sizes(model)
    layers = [module for module in model.modules() if _name(module) in _KINDS]
    if len(layers) != len(sizes) or len(set(sizes)) > 1:
        raise _refusal(getattr(model, "model_type", type(model).__name__))
    reasons = []
    for stock in dict.fromkeys(type(layer) for layer in layers):
        alike = [layer for layer in layers if type(layer) is stock]
        reasons += _wrap_alike(alike, stock, sizes[0], _embedding_width(model))
    return reasons


def _wrap_alike(layers: Sequence[Any], stock: type, size: int, width: int) -> list[str]:
    """Wraps layers of one class; where their tapes do not replay right, their inputs are kept instead."""
    name = _name(layers[0])
    update, by_tape = _KINDS[name]
    recorder = Recorder(update, by_tape=by_tape)
    try:
        taped = derive_taped(stock, recorder)
    except LookupError:
        recorder.by_tape = False
        taped = derive_taped(stock, Recorder(None, by_tape=False))
    for layer in layers:
        tape_layer(layer, taped)
    if recorder.by_tape and check_layer(layers[0], stock, size, width, by_tape=True):
        return []
    recorder.by_tape = False
    if not check_layer(layers[0], stock, size, width, by_tape=False):
        raise _refusal(name)
    return [f"slow_rollback ({name})"] if by_tape else []


def _state_sizes(model: Any) -> list[int]:
    """How many arrays each recurrent layer keeps, by the caches mlx-lm makes for it."""
    from mlx_lm.models.cache import ArraysCache, CacheList, make_prompt_cache

    caches = [
        part
        for cache in make_prompt_cache(model)
        for part in (cache.caches if isinstance(cache, CacheList) else (cache,))
    ]
    return [len(cache.cache) for cache in caches if isinstance(cache, ArraysCache)]


def _embedding_width(model: Any) -> int:
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding | nn.QuantizedEmbedding)]
    table = tables[0]
    return int(table.dims if isinstance(table, nn.QuantizedEmbedding) else table.weight.shape[1])


def _name(module: Any) -> str:
    kind = type(module)
    return f"{kind.__module__}.{kind.__name__}".removeprefix(OWNERS)


def _refusal(name: str) -> FailedPrecondition:
    return FailedPrecondition(
        "this build cannot take back the state of the body's recurrent layers",
        name,
        "choose a pack of another family",
    )


def _kinds() -> dict[str, tuple[Update | None, bool]]:
    """Classes of layers by name: their recurrence, and whether a tape tells how to go back."""
    kinds: dict[str, tuple[Update | None, bool]] = {}
    for room in (gated_delta, kda, mamba2, lightning):
        kinds |= dict.fromkeys(room.MIXERS, (room.UPDATE, True))
    kinds |= dict.fromkeys(short_conv.MIXERS, (None, True))
    return kinds | dict.fromkeys(selective.MIXERS, (None, False))


_KINDS = _kinds()
