"""What a client needs: it works where mlx cannot be imported, and pays only for what it uses."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.fake_daemon import FakeDaemon
from support.without_mlx import environment_without_mlx

_USE = """
import sys
from mtplx_client import Client
with Client(sys.argv[1]) as client:
    print(client.complete("hi").text)
heavy = {"mlx", "mlx_lm", "numpy", "transformers", "rich", "click"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_client_answers_where_mlx_cannot_be_imported(daemon: FakeDaemon) -> None:
    child = subprocess.run(
        [sys.executable, "-c", _USE, str(daemon.socket)],
        env=environment_without_mlx(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.stderr == ""
    assert child.stdout == "The Rhine, the Elbe.\n"


def test_the_blocker_of_these_tests_blocks() -> None:
    child = subprocess.run(
        [sys.executable, "-c", "import mlx.core"],
        env=environment_without_mlx(),
        capture_output=True,
        text=True,
    )
    assert child.returncode == 1
    assert "mlx is blocked" in child.stderr


def test_public_names_are_there_and_others_are_not() -> None:
    import mtplx_client

    for name in mtplx_client.__all__:
        assert getattr(mtplx_client, name).__name__ == name
    with pytest.raises(AttributeError):
        mtplx_client.Nothing  # noqa: B018
