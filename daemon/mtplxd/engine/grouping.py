"""Rows of a batch that are treated alike, taken out together and put back in order. Decides nothing."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from mtplxd.platform.mlx import Array, mx


class Grouping:
    """B rows by what kind they are, in the order of the kinds' first rows. Rows of one kind alone are never copied."""

    def __init__(self, kinds: Sequence[Hashable]) -> None:
        by_kind: dict[Hashable, list[int]] = {}
        for place, kind in enumerate(kinds):
            by_kind.setdefault(kind, []).append(place)
        self.groups = list(by_kind.values())
        self._order = sorted(range(len(kinds)), key=[p for group in self.groups for p in group].__getitem__)

    @property
    def single(self) -> bool:
        """Whether all rows are of one kind."""
        return len(self.groups) == 1

    def join(self, parts: Sequence[Array]) -> Array:
        """Arrays [b, …] of each group as one of all rows in their order."""
        return parts[0] if self.single else mx.concatenate(list(parts))[mx.array(self._order)]


def take_rows(values: Array, places: Sequence[int]) -> Array:
    """Some rows of [B, …]; those that lie side by side are not copied."""
    if list(places) == list(range(places[0], places[-1] + 1)):
        return values[places[0] : places[-1] + 1]
    return values[mx.array(places)]
