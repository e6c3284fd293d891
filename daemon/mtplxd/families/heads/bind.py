"""Fills a head's module from its tensors, strictly both ways: every parameter from a tensor, every tensor used.

The body's embedding and output matrix are aliases, never copied. Nothing is read from disk before the names and shapes
agree, so that a refused head leaves nothing behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.families.heads.module import HeadLayer, HeadModule
from mtplxd.families.heads.norms import is_norm
from mtplxd.families.heads.row import HeadFamily, HeadSettings, Weights
from mtplxd.families.heads.stored import dequantise_fp8, packing
from mtplxd.families.settling import Settler
from mtplxd.packs.binding import WAYS_ON
from mtplxd.platform.mlx import Array, mx, nn, tree

_KEPT = re.compile(r"\.(?:e_score_correction_bias|router_bias)$")
"""Biases that order experts: differences of theirs are below half precision."""


def place_tensors(
    tensors: Mapping[str, Array], family: HeadFamily, args: Any, layers: int, block: tuple[int, int]
) -> dict[str, Array]:
    """Published tensors, by name without wrap, as those of the module, by path. `layers` is the body's count."""
    placed: dict[int, Weights] = {}
    for name, array in dequantise_fp8(tensors, block).items():
        number, path = family.keys(name, layers)
        placed.setdefault(number, {})[path] = array
    found: dict[str, Array] = {}
    for number, weights in placed.items():
        for convert in family.convert:
            weights = convert(weights, args)
        found |= {f"layers.{number}.{path}": array for path, array in weights.items()}
    return found


def norms_of(weights: Mapping[str, Array]) -> Iterator[Array]:
    """The weights of all RMS norms among the module's tensors."""
    return (array for path, array in weights.items() if is_norm(path, array))


def build_module(
    weights: Mapping[str, Array], family: HeadFamily, settings: HeadSettings, args: Any, count: int
) -> HeadModule:
    """A module of `count` layers with the parameters that these tensors are for; its values are never read.

    A layer has an embedding or output matrix of its own where the family says so, or where a copy is kept.
    """
    layers = []
    for j in range(count):
        own = [
            args.vocab_size if kind == "own" or f"layers.{j}.{name}.weight" in weights else 0
            for name, kind in (("embed_tokens", family.embedding), ("output", family.output))
        ]
        layers.append(
            HeadLayer(
                family.block(args, j),
                args.hidden_size,
                getattr(args, family.eps),
                hidden_first=settings.concat == "hidden_first",
                output_norm=family.output_norm,
                own_embedding=own[0],
                own_output=own[1],
            )
        )
    module = HeadModule(layers)
    pack_linears(module, weights)
    return module


def pack_linears(module: HeadModule, weights: Mapping[str, Array]) -> None:
    """Makes those layers MLX-quantised whose tensors come with scales."""

    def wanted(path: str, layer: Any) -> dict[str, int] | bool:
        scales, weight = weights.get(f"{path}.scales"), weights.get(f"{path}.weight")
        if scales is None or weight is None or not hasattr(layer, "to_quantized"):
            return False
        bits, group = packing(weight, scales, layer.weight.shape[-1])
        return {"bits": bits, "group_size": group}

    nn.quantize(module, class_predicate=wanted)


def check_names(module: HeadModule, weights: Mapping[str, Array]) -> None:
    """Raises FailedPrecondition with every tensor that is missing, unused or misshapen."""
    wanted = {path: array.shape for path, array in tree.tree_flatten(module.parameters())}
    missing, extra = sorted(wanted.keys() - weights.keys()), sorted(weights.keys() - wanted.keys())
    misshapen = [
        f"{path} {list(weights[path].shape)} not {list(shape)}"
        for path, shape in sorted(wanted.items())
        if path in weights and weights[path].shape != shape
    ]
    lists = (("missing", missing), ("unused", extra), ("wrong shape", misshapen))
    if any(names for _, names in lists):
        words = ", ".join(f"{word} {names}" for word, names in lists if names)
        raise FailedPrecondition("the head does not bind", words, WAYS_ON)


def fill_module(
    module: HeadModule, weights: dict[str, Array], settings: HeadSettings, dtype: Any, settler: Settler
) -> None:
    """Empties the tensors into the module, floats as `dtype`; one as stored is gone before the next one is read."""
    check_names(module, weights)
    settler.expect(len(weights))
    while weights:
        path, array = weights.popitem()
        module.load_weights(
            [(path, settler.settle(_as_computed(path, array, settings, dtype)))], strict=False
        )
    module.freeze()
    module.eval()


def _as_computed(path: str, array: Array, settings: HeadSettings, dtype: Any) -> Array:
    if settings.norm_convention == "zero_centred" and is_norm(path, array):
        array = array.astype(mx.float32) + 1
    if not mx.issubdtype(array.dtype, mx.floating):
        return array
    return array.astype(mx.float32 if _KEPT.search(path) else dtype)
