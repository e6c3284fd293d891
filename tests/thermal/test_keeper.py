"""Fans are held or automatic once they read so: refused, lying and failing hardware, on a clock that is told."""

from __future__ import annotations

import math

import pytest
from mtplxd.thermal.fand.keeper import FAILED_READS, LONGEST_RETRY_S, REFUSED_S, SETTLE_S, TAKE_S, Keeper
from support.scripted_fans import ScriptedFans

LONG_S = 60.0


class Rig:
    """A keeper and its clock, which jumps to whatever is due next."""

    def __init__(self, fans: ScriptedFans) -> None:
        self.fans, self.now, self.said = fans, 0.0, list[str]()
        self.keeper = Keeper(fans, self.said.append)
        self.waits: list[float] = []

    def play(self, until: str, limit_s: float = LONG_S) -> float:
        """Steps until the state is reached; the seconds that took."""
        begin = self.now
        while True:
            due = self.keeper.step(self.now)
            if self.state == until:
                return self.now - begin
            assert due - begin <= limit_s, f"still {self.state} after {limit_s} s"
            self.waits.append(due - self.now)
            self.now = due

    def want(self, held: bool, until: str, limit_s: float = LONG_S) -> float:
        self.keeper.want(held, self.now)
        return self.play(until, limit_s)

    @property
    def state(self) -> str:
        return self.keeper.outcome.state


def test_a_keeper_begins_by_giving_back_what_another_life_left() -> None:
    rig = Rig(ScriptedFans(modes=["held", "auto"]))
    assert not rig.keeper.ready
    rig.play("automatic")
    assert rig.keeper.ready
    assert rig.fans.modes == ["auto", "auto"]


def test_an_unlock_that_was_left_is_no_automatic_fan() -> None:
    rig = Rig(ScriptedFans(unlocked=True))
    rig.play("automatic")
    assert (rig.fans.restores, rig.fans.unlocked) == (1, False)


def test_fans_that_are_automatic_are_not_written_to() -> None:
    rig = Rig(ScriptedFans())
    rig.play("automatic")
    assert rig.fans.restores == 0
    assert rig.keeper.step(0) == math.inf


@pytest.mark.parametrize("fault", ["lies", "refusals"])
def test_giving_back_is_tried_again_until_it_reads_true(fault: str) -> None:
    rig = Rig(ScriptedFans(modes=["held"] * 2, **{fault: 9}))
    assert rig.play("automatic") <= 10 * LONGEST_RETRY_S
    assert rig.fans.restores == 10
    assert rig.keeper.outcome.attempts == 10
    assert rig.waits == sorted(rig.waits)
    assert max(rig.waits) <= LONGEST_RETRY_S + 1e-9
    assert any("automatic after 10 attempts" in line for line in rig.said)


def test_fans_are_held_once_they_read_held() -> None:
    rig = Rig(ScriptedFans(lies=3))
    rig.play("automatic")
    rig.want(True, "held")
    assert rig.fans.holds == 4
    rig.want(False, "automatic")
    assert rig.keeper.outcome.restored == 2


def test_fans_that_somebody_took_away_are_taken_again() -> None:
    rig = Rig(ScriptedFans())
    rig.play("automatic")
    rig.want(True, "held")
    rig.fans.modes = ["auto", "held"]
    rig.now += 1
    rig.play("taking")
    rig.play("held")
    assert rig.fans.modes == ["held", "held"]


def test_fans_that_cannot_be_had_are_given_back_and_the_lease_ends() -> None:
    rig = Rig(ScriptedFans(refusals=10**6))
    rig.play("automatic")
    rig.keeper.want(True, rig.now)
    rig.fans.modes = ["held", "auto"]
    rig.play("restoring", TAKE_S + 1)
    assert rig.keeper.lost
    assert rig.keeper.refuses(rig.now)
    assert not rig.keeper.refuses(rig.now + REFUSED_S)
    rig.fans.refusals = 0
    rig.play("automatic")
    assert rig.fans.modes == ["auto", "auto"]


@pytest.mark.parametrize("fans", [ScriptedFans(modes=[]), ScriptedFans(theirs=True, modes=["manual"])])
def test_no_fan_of_ours_is_never_held(fans: ScriptedFans) -> None:
    rig = Rig(fans)
    rig.play("automatic")
    rig.want(True, "automatic")
    assert "no fan" in rig.keeper.lost
    assert rig.fans.holds == 0


def test_fans_that_cannot_be_read_are_given_back_blindly_and_the_lease_ends() -> None:
    rig = Rig(ScriptedFans())
    rig.play("automatic")
    rig.want(True, "held")
    rig.fans.unreadable = FAILED_READS + 4
    rig.now += 2
    rig.play("unreadable", 5)
    assert "cannot be read" in rig.keeper.lost
    assert rig.fans.blind == 1
    assert rig.fans.modes == ["auto", "auto"]
    rig.play("automatic")
    assert rig.fans.holds == 1, "nobody asked again"


def test_one_failed_read_ends_nothing() -> None:
    rig = Rig(ScriptedFans())
    rig.play("automatic")
    rig.want(True, "held")
    rig.fans.unreadable = FAILED_READS - 1
    for _ in range(10):
        rig.now = max(rig.now, rig.keeper.step(rig.now))
    assert (rig.state, rig.keeper.lost, rig.fans.blind) == ("held", "", 0)


def test_what_was_given_back_is_looked_at_until_the_system_has_settled() -> None:
    rig = Rig(ScriptedFans())
    rig.play("automatic")
    rig.want(True, "held")
    rig.want(False, "automatic")
    due = rig.keeper.step(rig.now)
    assert due == rig.now + SETTLE_S[0]
    rig.fans.modes = ["manual", "auto"]
    rig.now = due
    rig.play("restoring")
    rig.play("automatic")
    for wait in SETTLE_S:
        due = rig.keeper.step(rig.now)
        assert due == pytest.approx(rig.now + wait)
        rig.now = due
    assert rig.keeper.step(rig.now) == math.inf


def test_after_a_sleep_fans_that_we_had_are_looked_at_and_others_are_not() -> None:
    rig = Rig(ScriptedFans())
    rig.play("automatic")
    rig.fans.modes = ["manual"] * 2  # another program's
    rig.keeper.check(rig.now)
    assert rig.keeper.step(rig.now) == math.inf
    rig.fans.modes = ["auto"] * 2
    rig.want(True, "held")
    rig.want(False, "automatic")
    rig.now += 100
    rig.fans.modes = ["manual"] * 2
    rig.keeper.check(rig.now)
    rig.play("automatic")
    assert rig.fans.modes == ["auto"] * 2
