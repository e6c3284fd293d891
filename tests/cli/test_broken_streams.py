"""Standard streams that are closed or full: one line where anybody can read it, and the right exit code."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def shell(command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = command.replace("mtplx", f"{sys.executable} -m mtplx_client", 1)
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, **environment}
    )


@pytest.mark.parametrize("prompt", ["-", ""])
def test_a_closed_input_is_an_empty_prompt(environment: dict[str, str], prompt: str) -> None:
    child = shell(f"mtplx generate {prompt} <&-", environment)
    assert child.returncode == 2
    assert child.stderr == "error: the prompt is empty: give some text\n"


@pytest.mark.parametrize(("command", "code"), [("mtplx status >&-", 0), ("mtplx generat 2>&-", 2)])
def test_a_closed_output_keeps_the_exit_code(environment: dict[str, str], command: str, code: int) -> None:
    child = shell(command, environment)
    assert (child.returncode, child.stdout, child.stderr) == (code, "", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["status", "status --json", "generate hi", "config path", "--help"])
def test_a_full_disk_is_one_line(environment: dict[str, str], command: str) -> None:
    child = shell(f"mtplx {command} >/dev/full", environment)
    assert child.returncode == 3
    assert child.stderr.startswith("error: cannot write to standard output (No space left on device)")
    assert child.stderr.count("\n") == 1
