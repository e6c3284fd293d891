"""Shell completion: the scripts, and what they complete."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o"), ("zsh", "#compdef mtplx"), ("fish", "complete ")]
)
def test_the_script_of_each_shell(mtplx, shell: str, sign: str) -> None:
    result = mtplx("completion", shell)
    assert result.code == 0
    assert sign in result.out
    assert "_MTPLX_COMPLETE" in result.out


def test_another_shell_is_refused_with_those_there_are(mtplx) -> None:
    result = mtplx("completion", "tcsh")
    assert result.code == 2
    assert "'bash', 'zsh', 'fish'" in result.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("mtplx sta", {"status"}),
        ("mtplx w", {"wait-ready"}),
        ("mtplx config ", {"get", "path", "set"}),
        ("mtplx generate --temp", {"--temperature"}),
        ("mtplx ls --js", {"--json"}),
        ("mtplx completion ", {"bash", "fish", "zsh"}),
    ],
)
def test_commands_and_options_are_completed(
    environment: dict[str, str], words: str, expected: set[str]
) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "mtplx_client"],
        env={
            **os.environ,
            **environment,
            "_MTPLX_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        },
        capture_output=True,
        text=True,
    )
    assert child.stderr == ""
    assert {line.split(",")[1] for line in child.stdout.splitlines()} == expected
