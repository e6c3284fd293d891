"""Why the weights of a checkpoint cannot be converted as they are stored: from its config and its headers.

Whether a body of its kind can be run at all is `bodies`', whether a head can be driven the detector's.
"""

from __future__ import annotations

from mtplxd.packs.inspection import quantisation_of
from mtplxd.packs.layouts.stored import FP8, SCALE_ENDS
from mtplxd.packs.pack import Pack

METHODS = ("affine", "mxfp4", "mxfp8", "nvfp4", "fp8")
"""MLX's own packings, and FP8 blocks with their scales."""
_FLOATS = ("F32", "F16", "BF16")
_PACKED = ("U32", "U8", "F8_E8M0")
_WHOLE = ("I32", "I64", "BOOL")
_SHOWN = 3


def storage_faults(pack: Pack) -> list[str]:
    """The reasons in words; empty where there are none."""
    method = (quantisation_of(pack) or {}).get("method", METHODS[0])
    if method not in METHODS:
        return [f"its weights are packed by {method}, build from the checkpoint it was made of"]
    return _dtype_faults(pack) or _scale_faults(pack)


def _dtype_faults(pack: Pack) -> list[str]:
    known = (*_FLOATS, *_PACKED, *_WHOLE, FP8)
    strange = sorted({info.dtype for _, info in pack.body_tensors.values()} - {*known})
    return [f"it has weights of type {', '.join(strange)}"] if strange else []


def _scale_faults(pack: Pack) -> list[str]:
    """An FP8 matrix without its scales, or scales without their matrix, is a checkpoint that is not whole."""
    tensors = {name: info for name, (_, info) in pack.body_tensors.items()}
    bare = [
        name
        for name, info in tensors.items()
        if info.dtype == FP8 and not any(scale in tensors for scale in _scales_of(name))
    ]
    orphans = [
        name
        for name in tensors
        if name.endswith("_scale_inv") and name.removesuffix("_scale_inv") not in tensors
    ]
    return [
        *([f"FP8 weights without their scales: {_some(bare)}"] if bare else []),
        *([f"scales without their weights: {_some(orphans)}"] if orphans else []),
    ]


def _scales_of(name: str) -> tuple[str, ...]:
    return tuple(base + end for end in SCALE_ENDS for base in (name, name.removesuffix(".weight")))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(sorted(names)[:_SHOWN]) + more
