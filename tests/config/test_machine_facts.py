"""Facts come from the system as it is; unknown hardware keeps its raw name and nothing raises."""

from __future__ import annotations

import pytest
from mtplxd.platform.machine import Machine, System, measure_bandwidth, parse_power, read_machine

M4 = {
    "machdep.cpu.brand_string": "Apple M4\n",
    "hw.memsize": "17179869184\n",
    "kern.osproductversion": "15.1\n",
    "kern.osversion": "24B83\n",
    "sysctl.proc_translated": "0\n",
}
PMSET = "System-wide power settings:\nCurrently in use:\n powermode            {}\n sleep   1\n"


def mac(values: dict[str, str], pmset: str = "") -> Machine:
    def run(command: list[str]) -> str:
        return pmset if command[0] == "pmset" else values.get(command[-1], "")

    return read_machine(System("darwin", run, lambda _path: ""))


def linux(files: dict[str, str]) -> Machine:
    return read_machine(System("linux", lambda _command: "", lambda path: files.get(path, "")))


def test_a_mac() -> None:
    machine = mac(M4, PMSET.format(1))
    assert (machine.chip, machine.memory, machine.macos) == ("Apple M4", 16 << 30, "15.1")
    assert (machine.os, machine.power, machine.rosetta) == ("macOS 15.1 (24B83)", "low", False)


def test_chip_of_the_future_keeps_its_raw_name() -> None:
    assert mac({**M4, "machdep.cpu.brand_string": "Apple M99 Hyper"}).chip == "Apple M99 Hyper"
    assert mac({"hw.model": "Mac99,1"}).chip == "Mac99,1"


def test_translated_interpreter_is_noticed() -> None:
    assert mac({**M4, "sysctl.proc_translated": "1"}).rosetta


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (PMSET.format(0), "normal"),
        (PMSET.format(2), "high"),
        (" lowpowermode         1\n", "low"),
        (PMSET.format(7), "unknown"),
        ("", "unknown"),
    ],
)
def test_power_mode(text: str, mode: str) -> None:
    assert parse_power(text) == mode


def test_a_linux_box() -> None:
    machine = linux(
        {
            "/proc/cpuinfo": "processor : 0\nmodel name\t: Some CPU @ 3GHz\nprocessor : 1\n",
            "/proc/meminfo": "MemTotal:       1000 kB\nMemFree: 5 kB\n",
            "/etc/os-release": 'NAME=x\nPRETTY_NAME="Debian 12"\n',
            "/proc/sys/kernel/osrelease": "6.1.0\n",
        }
    )
    assert (machine.chip, machine.memory, machine.os) == (
        "Some CPU @ 3GHz",
        1_024_000,
        "Linux 6.1.0 (Debian 12)",
    )
    assert (machine.macos, machine.rosetta, machine.power) == ("", False, "unknown")


@pytest.mark.parametrize(
    ("limit", "memory"), [("512000\n", 512_000), ("max\n", 1_024_000), ("9999999999\n", 1_024_000)]
)
def test_memory_respects_a_containers_limit(limit: str, memory: int) -> None:
    files = {"/proc/meminfo": "MemTotal: 1000 kB\n", "/sys/fs/cgroup/memory.max": limit}
    assert linux(files).memory == memory


def test_system_that_says_nothing() -> None:
    machine = linux({})
    assert machine.chip
    assert (machine.memory, machine.os) == (0, "Linux")
    assert mac({}).memory == 0


def test_this_machine() -> None:
    machine = read_machine()
    assert machine.memory > 1 << 28
    assert machine.cores >= 1
    assert machine.chip.strip() == machine.chip != ""


def test_bandwidth_is_measured_when_asked() -> None:
    assert 0 < measure_bandwidth(size=1 << 22, seconds=0.001) < float("inf")
