"""A thread steps back where that stops nobody else, and where the system has no way to, it goes on as before."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from mtplxd.platform.priority import QOS_UTILITY, step_back


def on_a_thread(fn: Any) -> Any:
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(fn()))
    thread.start()
    thread.join()
    return result[0]


@pytest.mark.skipif(sys.platform != "linux", reason="niceness of one thread is Linux's")
def test_on_linux_no_thread_that_may_have_the_interpreters_lock_is_made_to_wait() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)

    def stepped() -> tuple[bool, int]:
        return step_back(), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert on_a_thread(stepped) == (False, before)


@pytest.mark.parametrize(("answer", "done"), [(0, True), (1, False)])
def test_a_mac_is_asked_for_the_class_of_utilities(answer: int, done: bool) -> None:
    asked: list[tuple[int, int]] = []

    def load() -> Any:
        return SimpleNamespace(pthread_set_qos_class_self_np=lambda *of: asked.append(of) or answer)

    assert step_back("darwin", load) is done
    assert asked == [(QOS_UTILITY, 0)]


def test_a_system_without_the_call_changes_nothing() -> None:
    def missing() -> ctypes.CDLL:
        raise OSError("no such library")

    assert step_back("darwin", missing) is False
    assert step_back("darwin", lambda: SimpleNamespace()) is False  # type: ignore[arg-type, return-value]
