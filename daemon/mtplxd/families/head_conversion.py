"""Changes how the tensors of a head are stored: FP8 blocks and wide floats to bfloat16, and packed where that is asked.

Published names stay. All it makes is lazy; which layers a module is built of afterwards is `heads.bind`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mtplxd.families.heads.opening import read_lazily
from mtplxd.families.heads.stored import dequantise_fp8
from mtplxd.packs.layouts.stored import is_ids
from mtplxd.packs.pack import Located
from mtplxd.platform.mlx import Array, mx

_EXACT = re.compile(r"(?:e_score_correction_bias|router_bias|A_log)$")
"""What order of magnitude half precision loses."""
_WHOLE = re.compile(
    r"(?:^|\.)(?:fc|eh_proj|input_proj|mtp_linear_proj\.\d+|gate|router|shared_expert_gate|embed_tokens"
    r"|shared_head\.head|shared_head\.output|weights_proj)(?:\.weight)?$"
)
"""Layers that are never packed: what joins token and state, routers, and the vocabulary's matrices."""
_PARTS = (".scales", ".biases")


def read_plain(located: Located, block: tuple[int, int]) -> dict[str, Array]:
    """The tensors by stored name, floats in bfloat16, what MLX packed as it is packed.

    Raises FailedPrecondition for an FP8 matrix without scales, DataLoss for damaged files.
    """
    tensors = dequantise_fp8(dict(read_lazily(located)), block)
    return {name: _halved(name, array) for name, array in tensors.items()}


def is_packed(tensors: Mapping[str, Array]) -> bool:
    """Whether MLX packed some of it."""
    return any(array.dtype == mx.uint32 for name, array in tensors.items() if not is_ids(name))


def pack_matrices(tensors: Mapping[str, Array], bits: int, group_size: int) -> tuple[dict[str, Array], int]:
    """With every matrix packed that may be, and how many those are; narrower ones take smaller groups."""
    found, count = dict(tensors), 0
    for name, array in tensors.items():
        group = next((size for size in (group_size, 32) if array.shape and array.shape[-1] % size == 0), 0)
        if array.ndim < 2 or _WHOLE.search(name) or not group or not mx.issubdtype(array.dtype, mx.floating):
            continue
        base = name.removesuffix(".weight")
        found[name], *parts = mx.quantize(array, group_size=group, bits=bits)
        found |= {base + part: values for part, values in zip(_PARTS, parts, strict=True)}
        count += 1
    return found, count


def _halved(name: str, array: Array) -> Array:
    if _EXACT.search(name) or not mx.issubdtype(array.dtype, mx.floating):
        return array
    return array.astype(mx.bfloat16)
