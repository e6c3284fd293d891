"""How wide weights may be stored, and the one refusal of widths that nobody can have. Pure; nothing is converted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtplxd.errors import InvalidArgument

BITS = (2, 3, 4, 5, 6, 8)
"""Widths that MLX quantises to."""
FULL = 16
"""Bits that stand for floats."""
GROUP_SIZES = (32, 64, 128)
GROUP_SIZE = 64
"""Weights that share a scale, where nothing else is asked for."""
DTYPES = ("auto", "bf16", "f16", "f32")


def packs(bits: int | None) -> bool:
    """Whether a body of these bits has packed layers; None is as its source is."""
    return bits not in (None, FULL)


def check_body(bits: int | None, group_size: int, dtype: str, overrides: Mapping[str, int]) -> None:
    """Raises InvalidArgument naming what no body can be stored with, and what would change nothing."""
    if bits not in (None, FULL, *BITS):
        fix = f"{one_of((*BITS, FULL))}, or none to keep what the source has"
        raise wrong("body_bits", "no such width", bits, fix)
    if group_size not in GROUP_SIZES:
        raise wrong("group_size", "no such group size", group_size, one_of(GROUP_SIZES))
    if dtype not in DTYPES:
        raise wrong("dtype", "no such dtype", dtype, one_of(DTYPES))
    for layers, width in overrides.items():
        if width not in (*BITS, FULL):
            raise wrong("overrides", "no such width", f"{layers}={width}", one_of((*BITS, FULL)))
    if packs(bits):
        return
    if overrides:
        named = ", ".join(f"{layers}={width}" for layers, width in overrides.items())
        raise wrong("overrides", "widths of some layers need one for the others", named, "give body_bits too")
    if group_size != GROUP_SIZE:
        raise wrong("group_size", "nothing is packed in groups", group_size, "give body_bits too")


def check_head_width(bits: int | None, *, allowed: bool) -> None:
    """Raises InvalidArgument for a width that a head cannot be packed to, or was not allowed to."""
    if bits is None:
        return
    if bits not in BITS:
        raise wrong("head_bits", "no such width", bits, one_of(BITS))
    if not allowed:
        fix = "add --allow-degraded-head, or leave the head as it is"
        raise wrong("head_bits", "a packed head has far fewer of its drafts accepted", bits, fix)


def one_of(values: tuple[Any, ...]) -> str:
    """What to do, where only some values are there."""
    return f"give one of {', '.join(map(str, values))}"


def wrong(field: str, what: str, value: object, fix: str) -> InvalidArgument:
    """The refusal of one field's value."""
    return InvalidArgument(what, value, fix, field=field)
