"""Which tensors of a checkpoint its body's class is given, and the class's own `sanitize` over exactly these.

Some classes trip over tensors of a head, of eyes and ears, or over a layer whose number they take for a head's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mtplxd.families.fp8 import unpack_fp8
from mtplxd.packs.layouts.find import body_layers
from mtplxd.packs.pack import Pack
from mtplxd.packs.senses import is_of_senses
from mtplxd.platform.mlx import Array, mx

Weights = dict[str, Array]

_LAYER = re.compile(r"((?:model\.|language_model\.|backbone\.)*layers\.)(\d+)(?=\.)")


def read_body(pack: Pack) -> Weights:
    """The tensors of the body's text model by stored name, lazily; FP8 blocks as numbers."""
    layers = body_layers(pack.text_config)
    files: dict[Path, set[str]] = {}
    for name, (file, _) in pack.body_tensors.items():
        if not is_of_senses(name) and not (layers and _layer_of(name) >= layers):
            files.setdefault(file, set()).add(name)
    found: Weights = {}
    for file, names in files.items():
        held = mx.load(str(file))
        found |= {name: held[name] for name in names}
    return unpack_fp8(found, pack.config)


def sanitise(stock: Any, model: Any, weights: Weights) -> Weights:
    """The class's `sanitize`, and again for a layer it drops though the model has it, under another number.

    (DeepSeek-V3's drops layer 61, whatever the depth.)
    """
    if not hasattr(stock, "sanitize"):
        return weights
    given = {_layer_of(name) for name in weights} & set(range(len(model.layers)))
    found: Weights = stock.sanitize(model, dict(weights))
    for number in sorted(given - {_layer_of(name) for name in found}):
        alone = _renumbered(weights, number, 0)
        found |= _renumbered(stock.sanitize(model, alone), 0, number)
    return found


def _renumbered(weights: Mapping[str, Array], number: int, wanted: int) -> Weights:
    """The tensors of one layer alone, as another's."""
    return {
        _LAYER.sub(rf"\g<1>{wanted}", name, count=1): array
        for name, array in weights.items()
        if _layer_of(name) == number
    }


def _layer_of(name: str) -> int:
    found = _LAYER.match(name)
    return int(found[2]) if found else -1


def differences(wanted: Collection[str], given: Collection[str], most: int = 3) -> str:
    """In words: what a class has no tensor for, and what it has no use for. Empty where they agree."""
    lists = (("missing", set(wanted) - set(given)), ("unused", set(given) - set(wanted)))
    return "; ".join(f"{word} {_some(sorted(names), most)}" for word, names in lists if names)


def unlike(wanted: Mapping[str, Array], given: Mapping[str, Array], most: int = 3) -> str:
    """In words: what a class computes with and is given as whole numbers, as of an FP8 matrix whose scales are gone."""
    names = [
        f"{name} {str(array.dtype).removeprefix('mlx.core.')}"
        for name, array in sorted(given.items())
        if mx.issubdtype(wanted[name].dtype, mx.floating) and not mx.issubdtype(array.dtype, mx.floating)
    ]
    return f"no floats {_some(names, most)}" if names else ""


def _some(names: list[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
