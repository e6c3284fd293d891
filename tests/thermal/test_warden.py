"""The daemon's side of a lease: taken, renewed, given back and told; a helper that lives, refuses, dies, stalls."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.thermal.policy import STUCK_S, Mode, Work
from mtplxd.thermal.warden import Warden
from support.fake_smc import FakeSmc
from support.fand import Fand
from support.waiting import until

LEASE_S = 0.6


class Desk:
    """A warden whose work a test tells."""

    def __init__(self, socket_path: Path, mode: Mode = "auto") -> None:
        self.work, self.rival = Work(), ""
        self.warden = Warden(
            socket_path, mode, LEASE_S, lambda: self.work, lambda: "nominal", rival=lambda: self.rival
        )
        self.warden.start()


@pytest.fixture
def desk(fand: Fand) -> Iterator[Desk]:
    fand.start()
    made = Desk(fand.socket)
    yield made
    made.warden.close()


def test_fans_are_held_while_something_is_measured_and_given_back_after_it(desk: Desk, smc: FakeSmc) -> None:
    assert desk.warden.look().label == "automatic"
    with desk.warden.hold("a tuning"):
        until(lambda: smc.held)
        until(lambda: desk.warden.look().label == "held")
        view = desk.warden.view()
        assert (view.leased, view.reason, view.helper) == (True, "a tuning", "ready")
    until(lambda: smc.automatic)
    assert not desk.warden.look().leased


def test_a_lease_is_renewed_for_longer_than_it_lasts(desk: Desk, smc: FakeSmc, fand: Fand) -> None:
    with desk.warden.hold("a tuning"):
        until(lambda: smc.held)
        before = smc.get("manual_writes")
        ends = [0]

        def renewed() -> bool:
            assert smc.held
            ends[0] += 1
            return ends[0] > 2 * LEASE_S / 0.01

        until(renewed)
        assert smc.get("manual_writes") == before
    assert "run out" not in fand.log.read_text()


def test_who_wants_no_fans_moves_none(desk: Desk, smc: FakeSmc) -> None:
    with desk.warden.hold("a tuning", wanted=False):
        assert desk.warden.look().label == "automatic"
    assert smc.get("manual_writes") == 0


def test_an_error_inside_gives_fans_back_too(desk: Desk, smc: FakeSmc) -> None:
    def fail() -> None:
        with desk.warden.hold("a tuning"):
            until(lambda: smc.held)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    until(lambda: smc.automatic)


def test_two_measurements_share_the_fans(desk: Desk, smc: FakeSmc) -> None:
    with desk.warden.hold("one"):
        with desk.warden.hold("two"):
            until(lambda: smc.held)
        assert desk.warden.look().leased
        assert smc.held
    until(lambda: smc.automatic)


def test_the_mode_max_holds_until_the_daemon_ends_and_auto_gives_back(desk: Desk, smc: FakeSmc) -> None:
    desk.warden.set_mode("max")
    until(lambda: smc.held)
    desk.warden.set_mode("auto")
    until(lambda: smc.automatic)
    desk.warden.set_mode("max")
    until(lambda: smc.held)
    desk.warden.close()
    until(lambda: smc.automatic)


def test_the_mode_smart_holds_while_there_is_work(desk: Desk, smc: FakeSmc) -> None:
    desk.warden.set_mode("smart")
    assert smc.automatic
    desk.work = Work(busy=True)
    until(lambda: smc.held)
    desk.work = Work(busy=True, beat_age_s=STUCK_S)
    until(lambda: smc.automatic)


def test_a_helper_that_died_is_found_again(desk: Desk, smc: FakeSmc, fand: Fand) -> None:
    with desk.warden.hold("a tuning"):
        until(lambda: smc.held)
        fand.kill()
        until(lambda: desk.warden.look().helper == "unreachable")
        assert desk.warden.view().label == "unreachable"
        fand.start()
        until(lambda: desk.warden.look().label == "held")
        assert smc.held


def test_without_a_helper_nothing_is_refused_and_the_label_says_so(folder: Path) -> None:
    desk = Desk(folder / "nobody")
    with desk.warden.hold("a tuning"):
        view = desk.warden.look()
    assert (view.helper, view.label, view.leased) == ("not-installed", "not-available", False)
    desk.warden.close()


def test_fans_that_cannot_be_had_are_told_and_nothing_fails(desk: Desk, smc: FakeSmc) -> None:
    smc.set(fail_percent=100)
    with desk.warden.hold("a tuning"):
        until(lambda: desk.warden.look().helper == "refused")
        assert "cannot be read" in desk.warden.view().fault
    smc.set(fail_percent=0)
    until(lambda: smc.automatic)


def test_a_helper_that_stalls_holds_nobody_up(folder: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "stalled"))
    listener.listen()
    desk = Desk(folder / "stalled")
    with desk.warden.hold("a tuning"):
        until(lambda: desk.warden.look().helper == "unreachable")
    desk.warden.close()
    listener.close()


def test_fans_that_another_tool_rules_are_left_to_it_until_it_is_gone(desk: Desk, smc: FakeSmc) -> None:
    desk.rival = "ThermalForge answers at /somewhere"
    with desk.warden.hold("a tuning"):
        view = desk.warden.look()
        assert (view.helper, view.label, view.leased) == ("yielded", "yielded", False)
        assert view.fault == "ThermalForge answers at /somewhere: fans are left to it"
        assert smc.get("manual_writes") == 0
        desk.rival = ""
        until(lambda: desk.warden.look().label == "held")


def test_fans_that_are_held_go_back_when_another_tool_comes(desk: Desk, smc: FakeSmc) -> None:
    with desk.warden.hold("a tuning"):
        until(lambda: smc.held)
        desk.rival = "ThermalForge answers at /somewhere"
        until(lambda: smc.automatic)
        assert desk.warden.view().helper == "yielded"
