"""Leases end when their time is up, when they are given back, and never later than was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtplxd.thermal.fand.lease import RATE_BURST, RATE_S, Leases, Rate


def test_a_lease_ends_with_its_time_and_not_a_moment_before() -> None:
    leases = Leases()
    leases.hold(1, 10, now=100)
    assert leases.expire(109.9) == []
    assert leases.held
    assert leases.left(109) == 1
    assert leases.expire(110) == [1]
    assert not leases.held
    assert leases.left(110) is None
    assert leases.next_end() is None


def test_a_renewal_counts_from_now_and_may_shorten_it() -> None:
    leases = Leases()
    leases.hold(1, 10, now=0)
    leases.hold(1, 10, now=5)
    assert leases.next_end() == 15
    leases.hold(1, 1, now=6)
    assert leases.next_end() == 7


def test_fans_are_held_while_any_holder_is_left() -> None:
    leases = Leases()
    leases.hold(1, 10, now=0)
    leases.hold(2, 3, now=0)
    assert leases.expire(3) == [2]
    assert leases.held
    assert leases.release(1)
    assert not leases.held
    assert not leases.release(1)


def test_dropping_ends_all() -> None:
    leases = Leases()
    leases.hold(1, 10, now=0)
    leases.hold(2, 10, now=0)
    leases.drop()
    assert not leases.held


steps = st.lists(
    st.tuples(
        st.sampled_from(["hold", "release", "wait"]), st.integers(1, 3), st.floats(0.1, 30), st.floats(0, 20)
    ),
    max_size=40,
)


@given(steps)
def test_nothing_is_held_longer_than_the_last_renewal_allows(
    steps: list[tuple[str, int, float, float]],
) -> None:
    leases, now, ends = Leases(), 0.0, {}
    for what, holder, seconds, pause in steps:
        if what == "hold":
            leases.hold(holder, seconds, now)
            ends[holder] = now + seconds
        elif what == "release":
            leases.release(holder)
            ends.pop(holder, None)
        now += pause
        leases.expire(now)
        assert leases.held == any(end > now for end in ends.values())


def test_renewals_come_in_a_burst_and_then_at_their_rate() -> None:
    rate = Rate(0)
    assert [rate.take(0) for _ in range(RATE_BURST + 1)] == [True] * RATE_BURST + [False]
    assert rate.take(RATE_S)
    assert not rate.take(RATE_S)
    assert not rate.take(0), "a clock that goes back gives nothing"


@pytest.mark.parametrize("pause", [10.0, 1e9])
def test_a_long_pause_gives_one_burst_again(pause: float) -> None:
    rate = Rate(0)
    for _ in range(RATE_BURST):
        rate.take(0)
    assert sum(rate.take(pause) for _ in range(100)) == RATE_BURST
