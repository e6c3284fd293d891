"""Waiting for a process to be gone, whoever its parent is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from mtplx_client.cli.processes import is_alive, wait_gone
from mtplx_client.errors import DeadlineExceeded

PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.readline()
child.stdin.close()
sys.stdin.readline()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process whose child waits for a line; it never collects the child."""
    command = [sys.executable, "-c", PARENT, "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_a_process_that_its_parent_never_collects_is_gone_when_it_ends(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout
    assert parent.stdin
    child = int(parent.stdout.readline())
    assert is_alive(child)
    with pytest.raises(DeadlineExceeded):
        wait_gone(child, 0.0)
    parent.stdin.write("\n")
    parent.stdin.flush()
    wait_gone(child, 30.0)
    assert parent.poll() is None
