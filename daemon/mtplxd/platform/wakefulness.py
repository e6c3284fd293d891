"""Keeps the machine from falling asleep by itself, by the system's own means; says honestly where there are none.

When that is wanted is told from outside. The screen may go dark, and a lid that is closed still means sleep.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

WHY = "mtplxd is computing"
_FRAMEWORKS = "/System/Library/Frameworks"
_KIND = b"PreventUserIdleSystemSleep"
_LEVEL_ON, _UTF8 = 255, 0x08000100
_INHIBIT = ("/usr/bin/systemd-inhibit", "/bin/systemd-inhibit")
_SYSTEMD = Path("/run/systemd/system")
END_S = 2.0


class Keeper(Protocol):
    """One means. Nothing is raised: what goes wrong is `trouble`, in words."""

    name: str
    trouble: str

    def hold(self) -> bool:
        """Keeps awake from now on; False where that is refused."""

    def holds(self) -> bool:
        """Whether it still does: the system may have ended it."""

    def let_go(self) -> None:
        """Lets the machine sleep again."""


class NoKeeper:
    """A system that has none we know."""

    name = ""

    def __init__(self, trouble: str) -> None:
        self.trouble = trouble

    def hold(self) -> bool:
        return False

    def holds(self) -> bool:
        return False

    def let_go(self) -> None:
        return None


class PowerAssertion:
    """macOS: an assertion in this process's name, gone with the process. `pmset -g assertions` shows it."""

    name = "power assertion"

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self.trouble = ""
        self._load = load
        self._id: int | None = None

    def hold(self) -> bool:
        try:
            self._id = self._create()
        except (OSError, AttributeError) as error:
            self.trouble = f"no power assertions here: {error}"
        return self._id is not None

    def holds(self) -> bool:
        return self._id is not None

    def let_go(self) -> None:
        if self._id is not None:
            failed = self._iokit().IOPMAssertionRelease(ctypes.c_uint32(self._id))
            self.trouble = f"the assertion is not released: error {failed & 0xFFFFFFFF:#x}" if failed else ""
        self._id = None

    def _create(self) -> int | None:
        foundation = self._load(f"{_FRAMEWORKS}/CoreFoundation.framework/CoreFoundation")
        make, drop = foundation.CFStringCreateWithCString, foundation.CFRelease
        make.restype, make.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32]
        drop.restype, drop.argtypes = None, [ctypes.c_void_p]
        create = self._iokit().IOPMAssertionCreateWithName
        create.restype = ctypes.c_int32
        create.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32)]
        kind, name = make(None, _KIND, _UTF8), make(None, WHY.encode(), _UTF8)
        made = ctypes.c_uint32(0)
        failed = create(kind, _LEVEL_ON, name, ctypes.byref(made))
        for text in (kind, name):
            drop(text)
        self.trouble = f"the assertion is refused: error {failed & 0xFFFFFFFF:#x}" if failed else ""
        return None if failed else int(made.value)

    def _iokit(self) -> Any:
        return self._load(f"{_FRAMEWORKS}/IOKit.framework/IOKit")


class Inhibitor:
    """Linux: logind's inhibitor lock, held by a small child that ends with its standard input, however we end."""

    name = "systemd-inhibit"

    def __init__(self, program: str) -> None:
        self.trouble = ""
        self._command = [
            program, "--what=idle", "--who=mtplxd", f"--why={WHY}", "--mode=block", "cat",
        ]  # fmt: skip
        self._child: subprocess.Popen[bytes] | None = None

    def hold(self) -> bool:
        pipe = subprocess.PIPE
        try:
            self._child = subprocess.Popen(
                self._command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            self.trouble = f"cannot run {self._command[0]}: {error.strerror}"
        return self._child is not None

    def holds(self) -> bool:
        if self._child is not None and self._child.poll() is not None:
            assert self._child.stderr is not None
            said = self._child.stderr.read().decode(errors="replace").strip().splitlines()
            self.trouble = f"logind refuses: {said[-1] if said else self._child.returncode}"
            self._forget()
        return self._child is not None

    def let_go(self) -> None:
        if (child := self._child) is None:
            return
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        self._forget()

    def _forget(self) -> None:
        child, self._child = self._child, None
        for pipe in (child.stdin, child.stderr) if child else ():
            if pipe is not None:
                pipe.close()


def find_keeper(system: str = sys.platform, programs: tuple[str, ...] = _INHIBIT) -> Keeper:
    """The means of this system."""
    if system == "darwin":
        return PowerAssertion()
    found = next((program for program in programs if Path(program).exists()), None)
    if found is None:
        return NoKeeper("systemd-inhibit is not installed: this machine may fall asleep over its work")
    if not _SYSTEMD.is_dir():
        return NoKeeper("no systemd runs here: this machine may fall asleep over its work")
    return Inhibitor(found)


@dataclass(frozen=True)
class PowerView:
    """What status shows."""

    held: bool = False
    by: str = ""
    trouble: str = ""
    times: int = 0


class Wakefulness:
    """Awake while there is work and not for longer: what is held follows from what there is to do, looked at often, so
    that no error or cancel on the way can leave it held. Used from one thread at a time.
    """

    def __init__(self, busy: Callable[[], bool], keeper: Keeper) -> None:
        self._busy, self._keeper = busy, keeper
        self._was_busy = self._held = self._refused = False
        self.times = 0

    @property
    def view(self) -> PowerView:
        """As of the last look."""
        return PowerView(self._held, self._keeper.name, self._keeper.trouble, self.times)

    def due(self) -> bool:
        """Whether `look` has something to change. A pause between two requests lets nothing go: work is over once two
        looks in a row found none."""
        busy, was = self._busy(), self._was_busy
        self._was_busy = busy
        if busy:
            return not self._held and not self._refused
        return (self._held and not was) or self._refused

    def look(self) -> None:
        """Changes what `due` found to be changed; may wait for another process."""
        if self._busy():
            self._held = self._keeper.hold()
            self._refused = not self._held
            self.times += self._held
            return
        self.let_go()

    def check(self) -> None:
        """Looks whether what is held still is; now and then."""
        if self._held and not self._keeper.holds():
            self._held, self._refused = False, True
            self.times -= 1

    def let_go(self) -> None:
        """At the end, whatever there is to do."""
        if self._held:
            self._keeper.let_go()
        self._held = self._refused = False
