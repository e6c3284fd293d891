"""Numbers as people read them: sizes, times, rates and ratios."""

from __future__ import annotations

from collections.abc import Sequence

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """`276 MiB`; three digits at most."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    digits = 0 if unit == 0 or count >= 100 else 1
    return f"{count:.{digits}f} {_UNITS[unit]}"


def counted(count: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """`0.25 s`, `42 s`, `12 min`, `3 h 20 min`, `4 d 2 h`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds) // 60
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min"
    return f"{hours // 24} d {hours % 24} h"


def keep_alive(seconds: float) -> str:
    """`for ever`, `at once`, or a time."""
    if seconds < 0:
        return "until memory is needed"
    return "not at all" if seconds == 0 else duration(seconds)


def rate(tok_s: float) -> str:
    """`80.1 tok/s`."""
    return f"{tok_s:.1f} tok/s"


def ratio(value: float) -> str:
    """`1.42`, or a dash when it was not measured."""
    return f"{value:.2f}" if value > 0 else "–"


def shares(values: Sequence[float]) -> str:
    """`0.75 0.50`, or a dash."""
    return " ".join(f"{value:.2f}" for value in values) or "–"
