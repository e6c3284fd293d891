"""Changes how the weights of a body are stored, by mlx-lm's own rules: cast, quantised, unpacked. Nothing is computed.

All it makes is lazy: an array is read and worked out when whoever writes it asks for it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from mtplxd.errors import FailedPrecondition, InvalidArgument
from mtplxd.families.load_body import load_body_as_packed
from mtplxd.packs.pack import Located, Pack
from mtplxd.packs.senses import senses_of
from mtplxd.platform.mlx import Array, mx, tree

MODE = "affine"
_PACKED = ("weight", "scales", "biases")


@dataclass
class StoredBody:
    """A body whose weights are not yet read. `packing` is mlx-lm's word for how its matrices are packed, empty for
    floats; `left_out` are tensors of the source that no text model has a use for."""

    model: Any
    packing: dict[str, Any]
    left_out: Located

    @property
    def parameters(self) -> dict[str, Array]:
        """Every tensor by the name mlx-lm saves it under."""
        return dict(sorted(tree.tree_flatten(self.model.parameters())))

    @property
    def packed_layers(self) -> list[Any]:
        """The layers whose matrix is packed."""
        return [layer for _, layer in self.model.named_modules() if "scales" in layer]

    @property
    def weights(self) -> int:
        """How many numbers it has, however they are packed."""
        unpacked = sum(layer.weight.size * 32 // layer.bits for layer in self.packed_layers)
        stored = sum(layer[part].size for layer in self.packed_layers for part in _PACKED if part in layer)
        return int(sum(array.size for array in self.parameters.values()) - stored + unpacked)

    def give_up(self) -> dict[str, Array]:
        """The same, and the model holds none of them any more: each is gone with its last use."""
        given = self.parameters
        self.model.update(tree.tree_map(lambda _: mx.array([]), self.model.parameters()))
        return given


def open_stored(pack: Pack) -> StoredBody:
    """The body of a pack. FP8 blocks are numbers already, what MLX packed is packed.

    Raises DataLoss for damaged files, FailedPrecondition for a body this build cannot run.
    """
    model, packing = load_body_as_packed(pack)
    return StoredBody(model, packing, senses_of(pack.body_tensors))


def cast(body: StoredBody, dtype: Any) -> int:
    """Floats as `dtype`, but those that the class wants as they are; gives how many that makes narrower or other."""
    wanted = getattr(body.model, "cast_predicate", lambda _: True)
    changed = {
        name: array.astype(dtype)
        for name, array in body.parameters.items()
        if mx.issubdtype(array.dtype, mx.floating) and array.dtype != dtype and wanted(name)
    }
    body.model.load_weights(list(changed.items()), strict=False)
    return 0 if dtype == mx.float32 else len(changed)


def unpack(body: StoredBody) -> None:
    """Every packed matrix as floats. Raises FailedPrecondition for a class of layers that cannot be unpacked."""
    from mlx_lm.models.mla import MultiLinear, QuantizedMultiLinear
    from mlx_lm.utils import dequantize_model

    latent = []
    for path, layer in body.model.named_modules():
        if isinstance(layer, QuantizedMultiLinear):
            floats = mx.dequantize(
                layer.weight, layer.scales, layer.get("biases"), layer.group_size, layer.bits, layer.mode
            )
            heads, outputs, inputs = floats.shape
            plain = MultiLinear(inputs, outputs, heads)
            plain.weight = floats
            latent.append((path, plain))
    body.model.update_modules(tree.tree_unflatten(latent))
    dequantize_model(body.model)
    if packed := [name for name in body.parameters if name.endswith(".scales")]:
        raise FailedPrecondition(
            "this body's packed layers cannot be unpacked", packed[0], "forge its full-precision repository"
        )
    body.packing = {}


def quantise(body: StoredBody, bits: int, group_size: int, overrides: Mapping[str, int | None]) -> int:
    """Packs what mlx-lm packs of this class; gives how many layers that are.

    `overrides` are bits by a pattern of layer paths, None for floats; they go before the class's own rules, the last
    one that fits before the others. Raises InvalidArgument for a pattern that fits no layer.
    """
    from mlx_lm.utils import quantize_model

    own = getattr(body.model, "quant_predicate", None)
    asked: list[str] = []

    def wanted(path: str, layer: Any) -> bool | dict[str, Any]:
        asked.append(path)
        fitting = [value for pattern, value in overrides.items() if fnmatchcase(path, pattern)]
        if fitting:
            return bool(fitting[-1]) and {"group_size": group_size, "bits": fitting[-1], "mode": MODE}
        return True if own is None else own(path, layer)

    with contextlib.redirect_stdout(io.StringIO()):  # it prints
        _, config = quantize_model(body.model, {}, group_size, bits, MODE, quant_predicate=wanted)
    _check_patterns(overrides, asked)
    body.packing = config["quantization"]
    return len(body.packed_layers)


def _check_patterns(patterns: Iterable[str], layers: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(layer, pattern) for layer in layers):
            fix = f"give a pattern of paths such as {layers[-1]}" if layers else "leave it out"
            raise InvalidArgument("no layer that can be packed fits", pattern, fix, field="overrides")
