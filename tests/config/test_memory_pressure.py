"""How short of memory the system says it is: macOS's level by its own call, Linux's files, and what is not there."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from mtplxd.platform.machine import System
from mtplxd.platform.pressure import LEVEL, Pressure, own_group, parse_stalls, read_pressure, read_sysctl

STALLS = """\
some avg10=12.50 avg60=3.10 avg300=0.90 total=123456
full avg10=4.25 avg60=1.00 avg300=0.10 total=45678
"""


def linux(**files: str) -> System:
    paths = {
        "machine": "/proc/pressure/memory",
        "group": "/proc/self/cgroup",
        "own": "/sys/fs/cgroup/user.slice/mtplxd.service/memory.pressure",
    }
    texts = {paths[name]: text for name, text in files.items()}
    return System("linux", lambda _: "", lambda path: texts.get(path, ""))


class Kernel:
    """A C library with the one call; `asked` are the names it was asked for."""

    def __init__(self, level: int | None) -> None:
        self.level, self.asked = level, list[bytes]()

    def sysctlbyname(self, name: bytes, value: Any, size: Any, new: Any, length: Any) -> int:
        self.asked.append(name)
        assert (new, length.value, size._obj.value) == (None, 0, 4)
        if self.level is None:
            return -1
        value._obj.value = self.level
        return 0


def test_linux_tells_the_time_that_stood_still_for_memory() -> None:
    found = read_pressure(linux(machine=STALLS))
    assert found == Pressure(some=12.5, full=4.25)
    assert found.words == "12.5 % of the time stalled for memory, wholly 4.2 %"


def test_the_own_control_group_counts_where_it_stalls_more() -> None:
    own = "some avg10=50.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=1\n"
    group = "0::/user.slice/mtplxd.service\n"
    assert read_pressure(linux(machine=STALLS, group=group, own=own)) == Pressure(some=50.0, full=4.25)


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("0::/a/b.service\n", "/sys/fs/cgroup/a/b.service"),
        ("0::/\n", "/sys/fs/cgroup"),
        ("4:memory:/old\n", "/sys/fs/cgroup"),
        ("", "/sys/fs/cgroup"),
    ],
)
def test_the_own_group_is_the_one_of_the_second_version(text: str, folder: str) -> None:
    assert own_group(linux(group=text)) == folder


@pytest.mark.parametrize("text", ["", "not a pressure file", "some avg10=x"])
def test_a_kernel_without_pressure_files_tells_nothing(text: str) -> None:
    assert parse_stalls(text) == {}
    assert read_pressure(linux(machine=text)) == Pressure()
    assert Pressure().words == ""


@pytest.mark.parametrize("level", [1, 2, 4])
def test_macos_tells_its_own_level(level: int) -> None:
    kernel = Kernel(level)
    found = read_pressure(System("darwin", lambda _: "", lambda _: ""), lambda: kernel)
    assert found == Pressure(kernel=level)
    assert found.words == f"kernel level {level}"
    assert kernel.asked == [LEVEL.encode()]


def test_a_level_that_cannot_be_read_is_none() -> None:
    assert read_sysctl(LEVEL, lambda: Kernel(None)) is None
    assert read_sysctl(LEVEL, lambda: object()) is None


def test_this_system_can_be_read() -> None:
    found = read_pressure()
    assert all(share is None or 0 <= share <= 100 for share in (found.some, found.full))
    assert read_sysctl("no.such.name", lambda: ctypes.CDLL(None)) is None
