"""GLM-5 to 5.3: DeepSeek-V3.2's block. From 5.2 on the drafts of a round share the slots chosen for the first of them.

With `index_share_for_mtp_iteration` the head's own indexer chooses for the last true pair, and recursion pairs attend
to the same slots; their keys still enter the indexer's cache, so that it keeps step with the other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mtplxd.families.heads import deepseek_v32
from mtplxd.families.heads.driver import PublishedHead
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import Array, mx


@dataclass(slots=True)
class Choice:
    """The slots last chosen, [B, 1, 1, K] or None for all, and whether the next forward chooses anew."""

    slots: Array | None = None
    fresh: bool = True


class SharingHead(PublishedHead):
    """A head whose recursion attends to the slots chosen for the pair it began with. Serves one row at a time."""

    apart = "this head's drafts share one choice of slots, which is not made for several rows at once"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._choice = _share(self.module.layers[0].block.self_attn.indexer)

    def absorb(self, tokens: Array, taps: Taps, cache: list[LayerCache]) -> Array:
        """Runs true pairs; gives y [B, L, H]."""
        self._choice.fresh = True
        return super().absorb(tokens, taps, cache)

    def extend(self, tokens: Array, state: Array, cache: list[LayerCache]) -> Array:
        """Runs recursion pairs; gives y [B, 1, H]."""
        self._choice.fresh = False
        return super().extend(tokens, state, cache)


def _share(indexer: Any) -> Choice:
    """From now on the indexer keeps its choice, and repeats it where it is not to choose anew."""
    choice, stock = Choice(), type(indexer)

    def choose(self: Any, x: Array, low: Array, mask: Array | None, cache: Any = None) -> Array | None:
        slots = stock.__call__(self, x, low, mask, cache)
        if choice.fresh:
            choice.slots = None if slots is None else mx.contiguous(slots[:, :, -1:])
            return slots
        return choice.slots

    indexer.__class__ = type(f"Sharing{stock.__name__}", (stock,), {"__call__": choose})
    return choice


def _driver(config: Mapping[str, Any]) -> type[PublishedHead]:
    return SharingHead if config.get("index_share_for_mtp_iteration") else PublishedHead


FAMILY = replace(deepseek_v32.FAMILY, name="glm_moe_dsa", types=frozenset({"glm_moe_dsa"}), driver=_driver)
