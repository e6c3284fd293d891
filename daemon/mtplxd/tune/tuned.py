"""The depths that tuning chose, kept in `tuning.json`: written, found again, cleared. It decides nothing.

One record a subject. A record made under other versions is used and says that it is stale; one that is damaged, or
whose drafts were not accepted, is as if there were none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mtplxd.tune.decision import COLLAPSED
from mtplxd.tune.keys import TunedKey
from mtplxd.tune.plan import AUTO
from mtplxd.tune.records import TuningFile

SECTION = "tuned"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class TunedDepth:
    """A kept choice. `depth` is AUTO where choosing as the text goes won; `ratio` to plain decoding with its interval's
    ends; `curve` is a depth controller's state; `result` is the whole answer as it was given.
    """

    depth: int
    ratio: float
    low: float
    high: float
    acceptance: float
    measured_at: float
    settings: str
    curve: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    stale: bool = False

    @property
    def auto(self) -> bool:
        """Whether each round's depth is chosen."""
        return self.depth == AUTO


class TunedDepths:
    """The section of the file; from any thread."""

    def __init__(self, file: TuningFile) -> None:
        self._file = file

    def find(self, key: TunedKey) -> TunedDepth | None:
        """The record of a subject, None where there is no sound one."""
        record = self._file.read(SECTION, key.subject)
        found = None if record is None else _read(record, key)
        return None if found is None or found.acceptance <= COLLAPSED else found

    def save(self, key: TunedKey, tuned: TunedDepth) -> bool:
        """Keeps it in place of the one before; False where the disk does not take it."""
        record = {
            "format": FORMAT,
            "versions": dict(key.versions),
            "depth": "auto" if tuned.auto else tuned.depth,
            "ratio": tuned.ratio,
            "ci95": [tuned.low, tuned.high],
            "acceptance": tuned.acceptance,
            "measured_at": tuned.measured_at,
            "settings": tuned.settings,
            "curve": dict(tuned.curve),
            "result": dict(tuned.result),
        }
        return self._file.write(SECTION, key.subject, record)

    def clear(self, key: TunedKey) -> bool:
        """Drops the record of a subject; whether there was one."""
        return self._file.remove(SECTION, key.subject)


def _read(record: Mapping[str, Any], key: TunedKey) -> TunedDepth | None:
    depth, ci95 = record.get("depth"), record.get("ci95")
    numbers = [record.get(name) for name in ("ratio", "acceptance", "measured_at")]
    if record.get("format") != FORMAT or not isinstance(ci95, list) or len(ci95) != 2:
        return None
    if not all(type(value) in (int, float) for value in (*numbers, *ci95)):
        return None
    if depth != "auto" and not (type(depth) is int and 0 < depth <= 64):
        return None
    curve, result, settings = record.get("curve"), record.get("result"), record.get("settings")
    return TunedDepth(
        depth=AUTO if depth == "auto" else int(depth),
        ratio=float(record["ratio"]),
        low=float(ci95[0]),
        high=float(ci95[1]),
        acceptance=float(record["acceptance"]),
        measured_at=float(record["measured_at"]),
        settings=settings if isinstance(settings, str) else "",
        curve=curve if isinstance(curve, dict) else {},
        result=result if isinstance(result, dict) else {},
        stale=record.get("versions") != dict(key.versions),
    )
