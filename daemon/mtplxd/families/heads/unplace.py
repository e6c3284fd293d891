"""The way back from a head's module to its tensors as published: the inverse of `bind.place_tensors`.

What a family does to its tensors on the way in (stacking experts, splitting a latent projection) only moves numbers
about. So the way in is taken once more with each number's place instead of the number, and that says where it came
from, for every family alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.families.heads.bind import place_tensors
from mtplxd.families.heads.norms import is_norm
from mtplxd.families.heads.row import HeadFamily, HeadSettings
from mtplxd.platform.mlx import Array, mx


def unplace(
    changed: Mapping[str, Array],
    published: Mapping[str, Array],
    family: HeadFamily,
    settings: HeadSettings,
    args: Any,
    layers: int,
) -> dict[str, Array]:
    """Those published tensors, by name without wrap, that `changed` ones of the module (by path) make, as published.

    `settings` are those in force, `layers` is the body's count. A matrix that was packed with scales comes back whole,
    without them. Raises FailedPrecondition where what changed is stored in a way that cannot be written again.
    """
    straight = {_path_of(name, family, layers): name for name in published}
    found: dict[str, Array] = {}
    moved: dict[str, Array] = {}
    for path, array in changed.items():
        array = _as_stored(path, array, settings)
        if path in straight and (
            packed(straight[path], published) or _alike(array, published[straight[path]])
        ):
            found[straight[path]] = array.astype(_dtype_of(straight[path], published))
        else:
            moved[path] = array
    return found | (_trace(moved, published, family, args, layers) if moved else {})


def packed(name: str, tensors: Mapping[str, Any]) -> bool:
    """Whether a matrix is packed by MLX."""
    return f"{name.removesuffix('.weight')}.scales" in tensors


def _path_of(name: str, family: HeadFamily, layers: int) -> str:
    number, path = family.keys(name, layers)
    return f"layers.{number}.{path}"


def _as_stored(path: str, array: Array, settings: HeadSettings) -> Array:
    array = array.astype(mx.float32)
    return array - 1 if settings.norm_convention == "zero_centred" and is_norm(path, array) else array


def _alike(array: Array, published: Array) -> bool:
    return bool(array.shape == published.shape and mx.issubdtype(published.dtype, mx.floating))


def _dtype_of(name: str, published: Mapping[str, Array]) -> Any:
    dtype = published[name].dtype
    return dtype if mx.issubdtype(dtype, mx.floating) else mx.bfloat16


def _trace(
    moved: Mapping[str, Array], published: Mapping[str, Array], family: HeadFamily, args: Any, layers: int
) -> dict[str, Array]:
    """By the places that the module's numbers had among all published ones."""
    begins, places = {}, {}
    end = 0
    for name, array in published.items():
        if not mx.issubdtype(array.dtype, mx.floating):
            continue
        begins[name] = end
        places[name] = mx.arange(end, end + array.size, dtype=mx.int64).reshape(array.shape)
        end += array.size
    came_from = place_tensors(places, family, args, layers, (1, 1))
    if missing := sorted(path for path in moved if path not in came_from):
        raise FailedPrecondition(
            "this head cannot be written as it was stored", missing[0], "extract it to a plain one first"
        )
    found: dict[str, Array] = {}
    for path, array in moved.items():
        source, values = came_from[path].reshape(-1), array.reshape(-1)
        for name, begin in begins.items():
            stored = published[name]
            inside = (source >= begin) & (source < begin + stored.size)
            if not inside.any():
                continue
            flat = found.get(name, stored).astype(mx.float32).reshape(-1)
            flat = _put(flat, mx.where(inside, source - begin, stored.size), values)
            found[name] = flat.reshape(stored.shape).astype(stored.dtype)
    return found


def _put(flat: Array, places: Array, values: Array) -> Array:
    """`flat` with values put at their places; those just behind its end are dropped."""
    longer = mx.concatenate([flat, mx.zeros((1,))])
    longer[places] = values
    return longer[:-1]
