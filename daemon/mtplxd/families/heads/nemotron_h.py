"""Nemotron-H: a block of attention and one of experts under `mtp.layers.*`, both together one drafting layer."""

from __future__ import annotations

import re
from typing import Any

from mtplxd.families.caches import RowCache
from mtplxd.families.heads.row import HeadFamily, Weights, causal_mask
from mtplxd.families.heads.stored import stack_experts
from mtplxd.platform.mlx import Array, nn

_NAME = re.compile(r"mtp\.(layers\.\d+\.)")
_PARTS = {"enorm.": "enorm.", "hnorm.": "hnorm.", "eh_proj.": "fc.", "final_layernorm.": "norm."}
_EXPERTS = {"up_proj": "fc1", "down_proj": "fc2"}


class NemotronStep(nn.Module):  # type: ignore[misc]
    """Attention without rotary embedding, then experts; each adds to what it is given."""

    def __init__(self, args: Any) -> None:
        from mlx_lm.models.nemotron_h import NemotronHBlock

        super().__init__()
        self.layers = [NemotronHBlock(args, "*"), NemotronHBlock(args, "E")]

    def __call__(self, x: Array, mask: Any, cache: Any) -> Array:
        """x [B, L, H] to y [B, L, H]; extends the cache, which is the attention's, by L."""
        attention, experts = self.layers
        return experts(attention(x, mask, cache))


def _keys(name: str, _layers: int) -> tuple[int, str]:
    found = _NAME.match(name)
    if not found:
        return 0, name
    rest = name[found.end() :]
    path = next((path + rest[len(part) :] for part, path in _PARTS.items() if rest.startswith(part)), "")
    return 0, path or f"block.{found[1]}{rest}"


def _stack(weights: Weights, _args: Any) -> Weights:
    return stack_experts(weights, _EXPERTS, "block.layers.1.mixer.")


FAMILY = HeadFamily(
    name="nemotron_h",
    types=frozenset({"nemotron_h"}),
    scheme="nemotron_h",
    keys=_keys,
    block=lambda args, _j: NemotronStep(args),
    cache=lambda _args, _j, rows: RowCache(rows),
    mask=causal_mask,
    convert=(_stack,),
    eps="layer_norm_epsilon",
)
