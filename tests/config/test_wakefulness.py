"""The machine is kept awake while there is work and not for longer, whatever becomes of the work.

macOS's calls are answered by a small library that is compiled here; logind's lock by a script in its place.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplxd.platform.wakefulness import Inhibitor, NoKeeper, PowerAssertion, Wakefulness, find_keeper

SOURCE = Path(__file__).parents[1] / "support" / "native" / "power.c"


class Counted:
    """A keeper that counts; `refuses` holds, and may lose what it holds."""

    name = "counted"

    def __init__(self) -> None:
        self.trouble = ""
        self.held = self.begun = self.ended = 0
        self.refuses = False

    def hold(self) -> bool:
        self.trouble = "refused" if self.refuses else ""
        if not self.refuses:
            self.held, self.begun = self.held + 1, self.begun + 1
        return not self.refuses

    def holds(self) -> bool:
        return bool(self.held)

    def let_go(self) -> None:
        self.held, self.ended = self.held - 1, self.ended + 1


class Work:
    """Something to do, or nothing."""

    def __init__(self) -> None:
        self.busy = False
        self.keeper = Counted()
        self.awake = Wakefulness(lambda: self.busy, self.keeper)

    def look(self, busy: bool) -> int:
        """How often it is held after a look."""
        self.busy = busy
        if self.awake.due():
            self.awake.look()
        return self.keeper.held


@pytest.fixture
def work() -> Work:
    return Work()


def test_it_is_held_once_while_there_is_work_and_let_go_after_it(work: Work) -> None:
    assert [work.look(busy) for busy in (False, True, True, True, False, False, False)] == [
        0,
        1,
        1,
        1,
        1,
        0,
        0,
    ]
    assert (work.keeper.begun, work.keeper.ended, work.awake.view.times) == (1, 1, 1)


def test_a_pause_between_two_requests_lets_nothing_go(work: Work) -> None:
    assert [work.look(busy) for busy in (True, False, True, False, True)] == [1] * 5
    assert work.keeper.begun == 1


def test_work_that_ends_while_it_is_taken_up_holds_nothing(work: Work) -> None:
    work.busy = True
    assert work.awake.due()
    work.busy = False
    work.awake.look()
    assert work.keeper.held == 0
    assert work.look(False) == 0


def test_a_refusal_is_told_once_and_tried_again_with_the_next_work(work: Work) -> None:
    work.keeper.refuses = True
    assert [work.look(True) for _ in range(3)] == [0, 0, 0]
    assert work.awake.view.trouble == "refused"
    assert not work.awake.view.held
    work.keeper.refuses = False
    assert [work.look(busy) for busy in (True, False, False, True)] == [0, 0, 0, 1]


def test_what_the_system_ended_is_not_called_held(work: Work) -> None:
    work.look(True)
    work.keeper.held = 0
    work.awake.check()
    assert not work.awake.view.held
    assert work.awake.view.times == 0


def test_the_end_lets_go_whatever_there_is_to_do(work: Work) -> None:
    work.look(True)
    work.awake.let_go()
    work.awake.let_go()
    assert (work.keeper.held, work.keeper.ended) == (0, 1)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    built = tmp_path_factory.mktemp("native") / "power.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(built), str(SOURCE)], check=True)
    return ctypes.CDLL(str(built))


@pytest.fixture
def assertion(library: Any) -> Iterator[tuple[PowerAssertion, Any]]:
    library.stand_in_refuse(0)
    library.stand_in_kind.restype = library.stand_in_name.restype = ctypes.c_char_p
    keeper = PowerAssertion(lambda _: library)
    yield keeper, library
    keeper.let_go()
    assert (library.stand_in_held(), library.stand_in_texts()) == (0, 0)


def test_macos_gets_one_assertion_against_idle_sleep_with_a_name(
    assertion: tuple[PowerAssertion, Any],
) -> None:
    keeper, library = assertion
    for _ in range(3):
        assert keeper.hold()
        assert (library.stand_in_held(), keeper.holds()) == (1, True)
        keeper.let_go()
        assert (library.stand_in_held(), keeper.trouble) == (0, "")
    assert library.stand_in_kind() == b"PreventUserIdleSystemSleep"
    assert b"mtplxd" in library.stand_in_name()


def test_an_assertion_that_is_refused_holds_nothing_and_says_why(
    assertion: tuple[PowerAssertion, Any],
) -> None:
    keeper, library = assertion
    library.stand_in_refuse(1)
    assert not keeper.hold()
    assert (keeper.holds(), library.stand_in_held()) == (False, 0)
    assert "0xe00002c1" in keeper.trouble


def test_an_assertion_that_is_not_released_is_told(assertion: tuple[PowerAssertion, Any]) -> None:
    keeper, _ = assertion
    keeper.hold()
    right, keeper._id = keeper._id, 7
    keeper.let_go()
    assert "not released" in keeper.trouble
    keeper._id = right


def test_a_system_without_the_frameworks_says_so() -> None:
    def missing(path: str) -> Any:
        raise OSError(f"{path}: no such file")

    keeper = PowerAssertion(missing)
    assert not keeper.hold()
    assert "no power assertions here" in keeper.trouble


@pytest.fixture
def inhibit(tmp_path: Path) -> Callable[[str], Inhibitor]:
    """An inhibitor whose program is this script; it gets the real one's arguments."""

    def make(body: str) -> Inhibitor:
        script = tmp_path / "systemd-inhibit"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o700)
        return Inhibitor(str(script))

    return make


def test_the_lock_is_held_by_a_child_that_ends_with_us(
    inhibit: Callable[[str], Inhibitor], tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    keeper = inhibit(f'echo "$@" > {seen}; shift 4; "$@"; echo gone >> {seen}')
    assert keeper.hold()
    assert keeper.holds()
    keeper.let_go()  # closes its input and waits for its end
    assert not keeper.holds()
    asked, gone = seen.read_text().splitlines()
    assert asked.startswith("--what=idle --who=mtplxd --why=")
    assert asked.endswith("--mode=block cat")
    assert gone == "gone"
    assert keeper.trouble == ""


def test_a_lock_that_is_refused_says_why(inhibit: Callable[[str], Inhibitor]) -> None:
    keeper = inhibit("echo 'Failed to inhibit: Access denied' >&2; exit 1")
    assert keeper.hold()
    assert keeper._child is not None
    keeper._child.wait()
    assert not keeper.holds()
    assert keeper.trouble == "logind refuses: Failed to inhibit: Access denied"
    keeper.let_go()


def test_a_child_that_does_not_end_is_ended(
    inhibit: Callable[[str], Inhibitor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtplxd.platform.wakefulness.END_S", 0.0)
    keeper = inhibit("exec sleep 600")
    keeper.hold()
    child = keeper._child
    keeper.let_go()
    assert child is not None
    assert child.returncode is not None


def test_a_program_that_cannot_run_is_told(tmp_path: Path) -> None:
    keeper = Inhibitor(str(tmp_path / "none"))
    assert not keeper.hold()
    assert "cannot run" in keeper.trouble


def test_each_system_has_its_means_or_says_that_it_has_none(tmp_path: Path) -> None:
    assert isinstance(find_keeper("darwin"), PowerAssertion)
    keeper = find_keeper("linux", (str(tmp_path / "none"),))
    assert isinstance(keeper, NoKeeper)
    assert "not installed" in keeper.trouble
    assert not keeper.hold()
    assert not keeper.holds()
    keeper.let_go()
