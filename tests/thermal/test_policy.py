"""When fans are to be held, on a clock that is told."""

from __future__ import annotations

import pytest
from mtplxd.config import KEYS
from mtplxd.thermal.fand.binding import DEFAULT_SOCKET
from mtplxd.thermal.fand.protocol import LONGEST_LEASE_S
from mtplxd.thermal.policy import COOL_S, LINGER_S, MODES, STUCK_S, Policy, Wish, Work, fan_mode

BUSY, IDLE, STUCK = Work(True, 0.1), Work(False, 5.0), Work(True, STUCK_S)
CLAIM = ("a tuning",)


def test_auto_leaves_fans_alone_but_for_measurements() -> None:
    policy = Policy("auto")
    assert policy.decide(BUSY, (), "critical", 0) == Wish(False)
    assert policy.decide(BUSY, CLAIM, "nominal", 1) == Wish(True, "a tuning")
    assert not policy.decide(IDLE, (), "serious", 2).hold


def test_max_holds_whatever_is_going_on() -> None:
    for work in (BUSY, IDLE, STUCK):
        assert Policy("max").decide(work, (), "nominal", 0).hold


def test_smart_ramps_with_the_request_and_holds_between_two_of_one_conversation() -> None:
    policy = Policy("smart")
    assert not policy.decide(IDLE, (), "nominal", 0).hold
    assert policy.decide(BUSY, (), "nominal", 10).hold
    assert policy.decide(IDLE, (), "nominal", 10 + LINGER_S - 1).hold
    assert not policy.decide(IDLE, (), "nominal", 10 + LINGER_S).hold


@pytest.mark.parametrize(
    ("heat", "held"), [("fair", True), ("serious", True), ("nominal", False), ("unknown", False)]
)
def test_smart_holds_until_the_machine_is_cool_or_a_bound(heat, held: bool) -> None:
    policy = Policy("smart")
    policy.decide(BUSY, (), "nominal", 0)
    assert policy.decide(IDLE, (), heat, LINGER_S + 1).hold is held
    assert not policy.decide(IDLE, (), heat, COOL_S).hold


@pytest.mark.parametrize(("mode", "claims"), [("smart", ()), ("smart", CLAIM), ("auto", CLAIM)])
def test_work_that_does_not_go_on_loses_its_claim(mode, claims: tuple[str, ...]) -> None:
    policy = Policy(mode)
    assert policy.decide(Work(True, STUCK_S - 1), claims, "nominal", 0).hold
    wish = policy.decide(STUCK, claims, "critical", 1)
    assert (wish.hold, wish.reason) == (False, "nothing has gone on for 180 s")
    assert policy.decide(BUSY, claims, "nominal", 2).hold, "it goes on: fans come back"


def test_a_claim_of_somebody_who_does_nothing_ends_too() -> None:
    assert not Policy("auto").decide(Work(False, STUCK_S), CLAIM, "nominal", 0).hold


def test_settings_and_helper_mean_the_same() -> None:
    keys = {key.name: key for key in KEYS}
    assert str(keys["fan_socket"].read(keys["fan_socket"].default)) == DEFAULT_SOCKET
    assert [fan_mode(keys["fans"].read(mode)) for mode in MODES] == [*MODES]
    assert keys["fan_lease"].read(f"{LONGEST_LEASE_S:g}") == LONGEST_LEASE_S
    for bad in ("31", "0.4"):
        with pytest.raises(ValueError, match=bad):
            keys["fan_lease"].read(bad)
