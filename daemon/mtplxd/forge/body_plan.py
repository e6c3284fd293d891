"""What a conversion is to make of a body's weights. Nothing is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mtplxd.forge.widths import GROUP_SIZE, check_body, packs


@dataclass(frozen=True)
class BodyPlan:
    """`bits` of the packed layers, 16 for floats, None for the source's own; `group_size` weights share a scale.

    `dtype` is that of all floats, `auto` leaves each as it is. `overrides` are bits by a pattern of layer paths.
    `memory` is how many bytes the conversion may take, 0 for any.
    """

    bits: int | None = None
    group_size: int = GROUP_SIZE
    dtype: str = "auto"
    overrides: Mapping[str, int] = field(default_factory=dict)
    memory: int = 0

    def __post_init__(self) -> None:
        """Raises InvalidArgument naming the field."""
        check_body(self.bits, self.group_size, self.dtype, self.overrides)

    @property
    def packs(self) -> bool:
        """Whether it asks for packed layers."""
        return packs(self.bits)

    def document(self) -> dict[str, object]:
        """As JSON: all that changes what comes out."""
        return {
            "bits": self.bits,
            "group_size": self.group_size,
            "dtype": self.dtype,
            "overrides": dict(self.overrides),
        }
