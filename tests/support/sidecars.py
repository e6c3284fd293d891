"""Changes a checkpoint's own head file as other tools write theirs: packed, split, renamed, damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtplxd.platform.mlx import mx
from support.checkpoint_files import Stored, write_tensors

SIDECAR = "mtp.safetensors"
Tensors = dict[str, Any]


def rewrite(folder: Path, change: Callable[[Tensors], None], name: str = SIDECAR) -> None:
    """Lets `change` edit a file's tensors, the head's own if no other, as MLX arrays."""
    file = folder / name
    tensors: Tensors = mx.load(str(file))
    mx.eval(*tensors.values())
    change(tensors)
    mx.save_safetensors(str(file), tensors, {"format": "mlx"})


def rename(folder: Path, new_name: Callable[[str], str | None]) -> None:
    """Gives each tensor, of whatever dtype, the name that `new_name` makes of its own; None leaves it out."""
    file = folder / SIDECAR
    raw = file.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    header.pop("__metadata__", None)
    found: dict[str, Stored] = {}
    for name, entry in header.items():
        low, high = (begin + at for at in entry["data_offsets"])
        if (renamed := new_name(name)) is not None:
            found[renamed] = Stored(entry["dtype"], tuple(entry["shape"]), raw[low:high])
    write_tensors(file, found)


def pack_matrices(tensors: Tensors, bits: int, group: int, spared: tuple[str, ...] = ()) -> None:
    """Packs every matrix that MLX's classes hold packed, but those whose names end so; routers stay as they are."""
    for name in [name for name in tensors if name.endswith(".weight") and tensors[name].ndim > 1]:
        base = name.removesuffix(".weight")
        if not base.endswith((".gate", *spared)):
            tensors[name], tensors[f"{base}.scales"], tensors[f"{base}.biases"] = mx.quantize(
                tensors[name], group_size=group, bits=bits
            )


def unpack_matrices(tensors: Tensors, bits: int, group: int) -> Tensors:
    """What a packed head computes with, by published name."""
    found = dict(tensors)
    for name in [name for name in tensors if name.endswith(".scales")]:
        base = name.removesuffix(".scales")
        scales, biases = (found.pop(f"{base}.{part}").astype(mx.float32) for part in ("scales", "biases"))
        found[f"{base}.weight"] = mx.dequantize(
            found[f"{base}.weight"], scales, biases, group_size=group, bits=bits
        )
    return found
