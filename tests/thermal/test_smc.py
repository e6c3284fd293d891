"""The real calls into IOKit against its stand-in, for each generation of Apple silicon."""

from __future__ import annotations

import ctypes
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from mtplxd.thermal.fand.fans import FanError
from mtplxd.thermal.fand.smc import KeyData, Smc, SmcError
from mtplxd.thermal.fand.smc_fans import SmcFans
from support.fake_smc import M1, M3, M4, M5, FakeSmc, compiled

ALL = [M1, M3, M4, M5]


def alone(library: Path, folder: Path) -> str:
    """A copy of the library: one that is loaded keeps the state that it found first."""
    copy = folder / "iokit-copy.so"
    copy.write_bytes(library.read_bytes())
    return str(copy)


@pytest.fixture
def open_fans(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def make(generation: int, **settings: int) -> tuple[FakeSmc, SmcFans]:
        state = FakeSmc(folder / "state", generation, **settings)
        for name, value in state.environment.items():
            monkeypatch.setenv(name, value)
        return state, SmcFans(Smc(alone(state.library, folder)))

    return make


def test_the_structure_has_the_controllers_layout() -> None:
    fields = ("key", "version", "limits", "info", "result", "status", "data8", "data32", "bytes")
    assert [getattr(KeyData, name).offset for name in fields] == [0, 4, 12, 28, 40, 41, 42, 44, 48]
    assert ctypes.sizeof(KeyData) == 80


@pytest.mark.parametrize("generation", ALL)
def test_fans_read_as_they_are(open_fans, generation: int) -> None:
    state, fans = open_fans(generation)
    reading = fans.read()
    assert [(fan.min, fan.max, fan.automatic, fan.held) for fan in reading.fans] == [
        (1200.0, 5800.0, True, False),
        (1200.0, 5801.0, True, False),
    ]
    assert reading.automatic
    state.set_fan(1, mode=1, target=5801.0)
    reading = fans.read()
    assert (reading.fans[1].automatic, reading.fans[1].held, reading.automatic) == (False, True, False)
    state.set_fan(1, mode=3)
    assert fans.read().automatic, "the system's own mode is automatic"


@pytest.mark.parametrize("generation", [M1, M5])
def test_a_fan_is_held_and_given_back_at_once_where_nothing_locks_it(open_fans, generation: int) -> None:
    state, fans = open_fans(generation)
    fans.hold(fans.read())
    assert state.held
    assert fans.read().held
    fans.restore(fans.read())
    assert state.automatic


@pytest.mark.parametrize(("generation", "says"), [(M3, "bad command"), (M4, None)])  # which swallows it
def test_a_locked_fan_is_unlocked_first_and_locked_again(
    open_fans, generation: int, says: str | None
) -> None:
    state, fans = open_fans(generation, unlock_ms=0)
    with pytest.raises(FanError, match=says) if says else nullcontext():
        fans.hold(fans.read())
    assert state.get("ftst") == 1
    assert not fans.read().automatic, "with the unlock on, no fan is the system's"
    fans.hold(fans.read())
    assert state.held
    fans.restore(fans.read())
    assert state.get("ftst") == 0
    assert state.automatic


def test_an_unlock_takes_its_time(open_fans) -> None:
    state, fans = open_fans(M3, unlock_ms=10**6)
    for _ in range(3):
        with pytest.raises(FanError):
            fans.hold(fans.read())
    assert not state.held
    assert state.get("ftst") == 1


@pytest.mark.parametrize("generation", ALL)
def test_blind_giving_back_writes_everything(open_fans, generation: int) -> None:
    state, fans = open_fans(generation)
    for number in range(2):
        state.set_fan(number, mode=1, target=5800.0)
    state.set(ftst=1 if generation in (M3, M4) else 0)
    fans.restore(None)
    assert state.automatic


def test_giving_back_goes_on_to_the_next_fan_when_one_refuses(open_fans) -> None:
    state, fans = open_fans(M1)
    fans.hold(fans.read())
    state.set(refuse_percent=100)
    with pytest.raises(FanError, match=r"F0Md = 00: not writable.*F1Md = 00: not writable"):
        fans.restore(fans.read())
    assert state.held


def test_a_lying_yes_is_seen_when_it_is_read_back(open_fans) -> None:
    state, fans = open_fans(M1, lie_percent=100)
    fans.hold(fans.read())
    assert not fans.read().held
    assert state.automatic


def test_giving_back_never_lowers_a_target_on_the_way(open_fans) -> None:
    """A mode that was not taken and a target of nothing would stop a fan."""
    state, fans = open_fans(M1)
    fans.hold(fans.read())
    state.set(lie_percent=100)
    fans.restore(fans.read())
    assert state.held


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user than the file's")
def test_who_is_not_root_is_told_so(open_fans) -> None:
    state, fans = open_fans(M1, root_only=1)
    state.path.chmod(0o666)
    state.path.parent.chmod(0o755)
    fans.read()
    os.seteuid(65534)
    try:
        with pytest.raises(FanError, match="only root may"):
            fans.hold(fans.read())
    finally:
        os.seteuid(0)


def test_a_connection_that_failed_is_opened_again(open_fans) -> None:
    state, fans = open_fans(M1)
    fans.read()
    state.set(fail_reads=1)
    with pytest.raises(SmcError, match="0xe00002ca"):
        fans.read()
    assert fans.read().automatic


def test_the_older_service_name_is_found_too(open_fans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SMC_SERVICE", "AppleSMC")
    _, fans = open_fans(M1)
    assert fans.read().automatic


def test_a_machine_without_a_controller_says_so(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("FAKE_SMC", "/nowhere")
    with pytest.raises(SmcError, match="no AppleSMC"):
        SmcFans(Smc(alone(compiled("iokit"), folder))).read()
    with pytest.raises(SmcError, match="IOKit cannot be used"):
        SmcFans(Smc("/nowhere/IOKit")).read()


def test_a_value_of_another_size_is_never_written(open_fans) -> None:
    state, fans = open_fans(M1)
    with pytest.raises(SmcError, match="holds 4 bytes"):
        fans._smc.write("F0Tg", b"\x00")
    assert state.get("writes") == 0
