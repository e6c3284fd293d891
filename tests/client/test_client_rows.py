"""What timed answers of clients at once come to, by arithmetic that is done here by hand."""

from __future__ import annotations

import pytest
from mtplx_client.client_rows import Kind, TimedAnswer, Wave, rows


def answer(begin: float, *times: float, tokens: int | None = None, rounds: int = 0) -> TimedAnswer:
    return TimedAnswer(begin, times, len(times) if tokens is None else tokens, rounds)


def wave(kind: Kind, width: int, repeat: int, *answers: TimedAnswer) -> Wave:
    return Wave(kind, width, repeat, answers)


def test_one_client_has_the_rate_that_every_other_measurement_gives() -> None:
    """(tokens - 1) / (last - first)."""
    assert wave("plain_one", 1, 0, answer(0.0, 1.0, 2.0, 3.0, tokens=7)).tok_s == pytest.approx(3.0)


def test_a_total_counts_from_the_first_token_of_any_to_the_last_of_any() -> None:
    found = wave("drafted", 2, 0, answer(0.0, 1.0, 5.0, tokens=10), answer(0.0, 3.0, 7.0, tokens=10))
    assert found.tok_s == pytest.approx(18 / 6)


def test_a_gap_is_weighed_against_the_usual_one_of_its_own_stream() -> None:
    assert answer(0.0, 1.0, 2.0, 3.0, 7.0).gap_over_round == pytest.approx(4.0)
    assert answer(0.0, 9.0, 10.0, 11.0).gap_over_round == pytest.approx(1.0)
    assert answer(0.0, 1.0, 2.0).gap_over_round == 0.0
    assert answer(0.0, 1.0).gap_over_round == 0.0


def test_ratios_are_of_what_ran_beside_each_other() -> None:
    """Twice as fast in each repeat, whatever the machine did in between."""
    waves = []
    for repeat, pace in ((0, 1.0), (1, 4.0), (2, 2.0)):
        one = answer(0.0, 0.0, 10.0 * pace, tokens=11)
        two = answer(0.0, 0.0, 10.0 * pace, tokens=11)
        slower = answer(0.0, 0.0, 12.5 * pace, tokens=11)
        waves += [
            wave("plain_one", 2, repeat, one),
            wave("drafted", 2, repeat, one, two),
            wave("plain", 2, repeat, slower, slower),
        ]
    (row,) = rows(waves)
    assert row.ratio_vs_plain_one == pytest.approx(2.0)
    assert row.ratio_vs_plain_total == pytest.approx(1.25)
    assert row.tok_s_plain_one == pytest.approx(0.5)
    assert row.repeats == 3


def test_a_row_has_the_waits_of_all_answers_and_the_worst_gap() -> None:
    fast = answer(0.0, 0.1, 1.1, 2.1, 3.1, rounds=30)
    slow = answer(0.0, 0.9, 1.9, 2.9, 8.9, rounds=34)
    later = answer(100.0, 100.2, 101.2, 102.2, 103.2, rounds=31)
    (row,) = rows([
        wave("plain_one", 2, 0, fast),
        wave("drafted", 2, 0, fast, slow),
        wave("drafted", 2, 1, later, later),
    ])  # fmt: skip
    assert (row.clients, row.gap_over_round) == (2, pytest.approx(6.0))
    assert (row.ttft_p50_s, row.ttft_p95_s) == (pytest.approx(0.2), pytest.approx(0.9))
    assert row.slowest_over_fastest == pytest.approx((8.9 / 3.1 + 1.0) / 2)
    assert (row.rounds_least, row.rounds_most) == (30, 34)
    assert (row.tok_s_plain_total, row.ratio_vs_plain_total) == (0.0, 0.0)


def test_each_width_is_read_with_its_own_plain_answers() -> None:
    quick, slow = answer(0.0, 0.0, 1.0, tokens=11), answer(0.0, 0.0, 2.0, tokens=11)
    one, two = rows([
        wave("plain_one", 1, 0, quick), wave("drafted", 1, 0, quick),
        wave("plain_one", 2, 0, slow), wave("drafted", 2, 0, quick, quick),
    ])  # fmt: skip
    assert (one.clients, one.ratio_vs_plain_one) == (1, pytest.approx(1.0))
    assert (two.clients, two.ratio_vs_plain_one) == (2, pytest.approx(4.0))
