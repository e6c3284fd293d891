"""How the weights of a head may be stored: as floats, as FP8 blocks with scales, or packed by MLX.

It turns a layout's plain shapes into what the file must hold, and says which dtypes do not go together.
"""

from __future__ import annotations

from collections.abc import Mapping

from mtplxd.packs.headers import TensorInfo
from mtplxd.packs.layouts.row import Config, Shapes, Tensors

FLOATS = ("F32", "F16", "BF16")
FP8 = "F8_E4M3"
SCALE_ENDS = ("_scale_inv", ".scale")
SCALE_DTYPES = (*FLOATS, "F8_E8M0")
ID_DTYPES: Mapping[str, tuple[str, ...]] = {
    "draft_vocab": ("I32",),
    "token_ordering": ("I64", "I32", "U32"),
}
"""Tensors of token ids by the end of their name; what ids they may hold is checked elsewhere."""

_BITS, _GROUPS = (2, 3, 4, 5, 6, 8), (32, 64, 128)
_BLOCK = (128, 128)


def as_stored(shapes: Shapes, tensors: Tensors, config: Config) -> Shapes:
    """The shapes of everything that must be in the file, scales and packed weights included."""
    block = scale_block(config)
    stored = dict(shapes)
    for name, shape in shapes.items():
        info, scale = tensors.get(name), _scale_name(name, tensors)
        if len(shape) < 2 or (info is None and scale not in tensors):
            continue
        if info is None or info.dtype == FP8:
            rows, columns = (-(-length // side) for length, side in zip(shape[-2:], block, strict=True))
            stored[scale] = (*shape[:-2], rows, columns)
        elif info.dtype == "U32":
            stored |= _packed(name, shape, info, tensors)
    return stored


def dtype_faults(shapes: Shapes, tensors: Tensors) -> list[str]:
    """Names with their dtype where it is none that such a tensor can have. `shapes` are the plain ones."""
    return [f"{name} {info.dtype}" for name, info in sorted(tensors.items()) if not _fits(name, info, shapes)]


def is_ids(name: str) -> bool:
    return name.endswith(tuple(ID_DTYPES))


def _fits(name: str, info: TensorInfo, shapes: Shapes) -> bool:
    if is_ids(name):
        return True
    if name.endswith(SCALE_ENDS):
        return info.dtype in SCALE_DTYPES
    matrix = len(shapes.get(name, ())) >= 2
    return info.dtype in FLOATS or (matrix and info.dtype in (FP8, "U32"))


def _scale_name(name: str, tensors: Tensors) -> str:
    """What the block scales of a weight are called: `weight_scale_inv`, or `scale` in its place."""
    short = name.removesuffix(".weight") + ".scale"
    return short if short in tensors else f"{name}_scale_inv"


def _packed(name: str, shape: tuple[int, ...], info: TensorInfo, tensors: Tensors) -> Shapes:
    """MLX's affine packing; bits and group follow from the widths, and must be ones that exist."""
    base, width = name.removesuffix(".weight"), shape[-1]
    scales = tensors.get(f"{base}.scales")
    bits = 32 * info.shape[-1] / width if info.shape else 0
    group = width / scales.shape[-1] if scales and scales.shape and scales.shape[-1] else 0
    bits, group = int(bits) if bits in _BITS else 4, int(group) if group in _GROUPS else 64
    words, groups = width * bits // 32, max(width // group, 1)
    return {
        name: (*shape[:-1], words),
        f"{base}.scales": (*shape[:-1], groups),
        f"{base}.biases": (*shape[:-1], groups),
    }


def scale_block(config: Config) -> tuple[int, int]:
    """Rows and columns that share one scale."""
    stated = config.get("quantization_config")
    block = stated.get("weight_block_size") if isinstance(stated, dict) else None
    if isinstance(block, list) and len(block) == 2 and all(type(side) is int and side > 0 for side in block):
        return block[0], block[1]
    return _BLOCK
