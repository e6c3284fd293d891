"""Work in parts stops before the part that would end too late, as far as the one before it tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import pytest
from mtplxd.engine.pacing import Pace


def parts_done(seconds: float, parts: Sequence[float]) -> int:
    """How many parts of these lengths are done before it is over."""
    moments: Iterator[float] = accumulate(parts, initial=100.0)
    pace = Pace(seconds, lambda: next(moments))
    return next((count for count in range(1, len(parts) + 1) if pace.over()), len(parts))


@pytest.mark.parametrize(
    ("seconds", "parts", "expected"),
    [
        (1.0, [0.3] * 9, 3),
        (1.0, [0.125] * 9, 8),
        (1.0, [0.6] * 9, 1),
        (0.0, [0.1] * 9, 1),
        (-1.0, [0.1] * 9, 1),
        (9.0, [0.1] * 9, 9),
        (1.0, [0.4, 0.1, 0.1, 0.5, 0.1], 4),
        (1.0, [0.55, 0.1, 0.1, 0.1, 0.1, 0.1], 1),
        (1.0, [0.1, 0.5, 0.1], 2),
    ],
)
def test_the_part_that_would_end_too_late_waits(seconds: float, parts: list[float], expected: int) -> None:
    assert parts_done(seconds, parts) == expected


@pytest.mark.parametrize("part", [0.01, 0.07, 0.2])
def test_even_parts_never_end_too_late_and_leave_less_than_one_unused(part: float) -> None:
    done = parts_done(1.0, [part] * 200) * part
    assert 1.0 - part - 1e-9 <= done <= 1.0 + 1e-9
