"""Memory that large blocks took goes back to the system at once."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from mtplxd.platform.heap import MAPPED_FROM, Leftovers, give_back_freed, give_back_large_blocks

PROBE = """
import ctypes, sys
from mtplxd.platform.heap import give_back_freed, give_back_large_blocks
if sys.argv[1] == "fixed" and not give_back_large_blocks():
    sys.exit("no such setting")
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def fill(size):
    block = c.malloc(size)
    ctypes.memset(block, 1, size)
    return block
c.free(fill(24 << 20))  # from here on blocks of that size come from the heap, where nothing is said
size = 8 << 20 if sys.argv[2] == "large" else 1 << 19
blocks = [(fill(size), fill(1 << 12)) for _ in range((96 << 20) // size)]
for freed, _ in blocks:
    c.free(freed)
if sys.argv[1] == "given back":
    give_back_freed()
print(int(next(line for line in open("/proc/self/status") if "VmRSS" in line).split()[1]) >> 10)
"""


def resident_mb(how: str, size: str = "large") -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, how, size], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_large_blocks_between_small_ones_are_given_back() -> None:
    assert resident_mb("fixed") + 80 < resident_mb("left alone")


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps freed memory")
def test_small_blocks_between_others_go_back_when_asked_for() -> None:
    assert resident_mb("given back", "small") + 80 < resident_mb("left alone", "small")
    assert resident_mb("fixed", "small") + 20 > resident_mb(
        "left alone", "small"
    )  # the threshold alone does not help


def test_a_library_that_keeps_nothing_is_asked_for_nothing() -> None:
    give_back_freed(lambda: SimpleNamespace())  # type: ignore[arg-type, return-value]


def test_leftovers_go_while_there_is_work_and_once_after_it() -> None:
    gone: list[str] = []
    states = iter([False, True, True, False, False, True, False])
    leftovers = Leftovers(lambda: next(states), lambda: gone.append("given back"))
    told = []
    for _ in range(7):
        leftovers.look()
        told.append(len(gone))
    assert told == [0, 1, 2, 3, 3, 4, 5]


def test_other_systems_are_left_alone() -> None:
    def never() -> Any:
        raise AssertionError("nothing to load")

    assert not give_back_large_blocks("darwin", never)


def test_another_c_library_is_no_fault() -> None:
    assert not give_back_large_blocks("linux", lambda: SimpleNamespace())  # type: ignore[arg-type, return-value]


def test_what_is_asked_for() -> None:
    asked: list[tuple[int, int]] = []

    def mallopt(setting: int, value: int) -> int:
        asked.append((setting, value))
        return 1

    library: Any = SimpleNamespace(mallopt=mallopt)
    assert give_back_large_blocks("linux", lambda: library)
    assert asked == [(-3, MAPPED_FROM)]
