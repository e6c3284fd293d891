"""What a verification must have found to count: the limits of its verdict, and whether a record's numbers keep them.

A record is text that anybody can write into: its own word that it passed is believed only beside the numbers that say
so. Which files it is of is `tiers`'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from typing import Any

from mtplxd.packs.manifest import table

NEAR_TIES = 0.01
"""The largest share of compared tokens that may be near-ties."""
LEAST_P = 1e-3
"""A p-value below it fails: one right decoder in a thousand is failed too."""
LEAST_POWER = 0.8
"""A record says that the law was tested: a test that would miss what it looks for more often is none."""
_TEXTS, _COUNTS = ("greedy", "coupled"), ("tokens", "divergences", "near_ties")

_MOST = 1 << 53


def finding_doubts(record: Mapping[str, Any]) -> list[str]:
    """Why the numbers of a record do not say that it passed; empty where they do."""
    reasons = [] if _is_day(record.get("date")) else ["its verification has no date"]
    if not _is_number(record.get("shape_noise"), 0, math.inf):
        reasons.append("its verification has no shape_noise")
    for name in _TEXTS:
        reasons += _text_doubts(name, table(record, name))
    return reasons + _law_doubts(table(record, "law"))


def names_depths(record: Mapping[str, Any], most: int) -> bool:
    """Whether a record names every depth from 0 to `most`, as whole numbers."""
    depths = record.get("depths")
    named = {depth for depth in depths if type(depth) is int} if isinstance(depths, list) else set()
    return named.issuperset(range(most + 1))


def _text_doubts(name: str, found: Mapping[str, Any]) -> list[str]:
    """Why a comparison of texts shows no identity."""
    tokens, divergences, near_ties = (_count(found.get(part)) for part in _COUNTS)
    if not tokens or divergences is None or near_ties is None:
        return [f"its verification compared no {name} texts"]
    if divergences:
        return [f"its verification found {divergences} {name} texts that part from plain decoding"]
    if near_ties > NEAR_TIES * tokens:
        return [f"its verification found {near_ties} near-ties in {tokens} {name} tokens"]
    return []


def _law_doubts(found: Mapping[str, Any]) -> list[str]:
    """Why a test of the law shows nothing."""
    if not _count(found.get("tokens")):
        return ["its verification tested no law"]
    if not _is_number(found.get("p_value"), LEAST_P, 1):
        return [f"its verification's p_value is not {LEAST_P:g} to 1"]
    if not _is_number(found.get("power"), LEAST_POWER, 1):
        return [f"its verification's power is not {LEAST_POWER:g} to 1"]
    return []


def _count(value: Any) -> int | None:
    """A whole number that a count may be, None for what is none."""
    return value if type(value) is int and 0 <= value < _MOST else None


def _is_number(value: Any, low: float, high: float) -> bool:
    """No more than is compared: a whole number in JSON may be too large for a float."""
    return type(value) in (int, float) and low <= value <= high and value != math.inf


def _is_day(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(date.fromisoformat(value))
    except ValueError:
        return False
