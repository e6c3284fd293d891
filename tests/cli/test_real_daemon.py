"""The command line and a real daemon with a tiny pack: started, used, stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client
from mtplx_client.cli.processes import is_alive
from support.tiny_pack import make_tiny_pack


@pytest.fixture
def real(home: Path) -> Iterator[dict[str, str]]:
    """Variables of a home with a tiny pack; whatever daemon was started there is stopped at the end."""
    make_tiny_pack(home / "packs" / "tiny")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MTPLXD_")}
    environment |= {"MTPLXD_HOME": str(home), "COLUMNS": "80"}
    yield environment
    if (home / "run" / "mtplxd.sock").exists():
        call(environment, "stop")


def call(environment: dict[str, str], *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "mtplx_client", *argv],
        env=environment,
        input=stdin,
        capture_output=True,
        timeout=120,
    )


def document(environment: dict[str, str], *argv: str) -> Any:
    done = call(environment, *argv, "--json")
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.splitlines()[-1])


def test_the_tour_starts_a_daemon_and_leaves_it(real: dict[str, str], home: Path) -> None:
    last = document(real, "quickstart", "--model", "tiny", "--skip-tune")
    assert last["answer"]["finish_reason"] in ("stop", "length")
    assert last["daemon"]["running"] is True
    pid = last["daemon"]["pid"]
    assert document(real, "status")["pid"] == pid
    assert (home / "logs" / "mtplxd.out").read_text().startswith("ready socket=")
    assert document(real, "stop") == {"pid": pid, "stopped": True, "socket": str(home / "run/mtplxd.sock")}
    assert not is_alive(pid)
    assert call(real, "status").returncode == 4


def test_the_tour_stops_the_daemon_that_it_started(real: dict[str, str]) -> None:
    last = document(real, "quickstart", "--model", "tiny", "--skip-tune", "--stop-after")
    assert last["daemon"]["running"] is False
    assert not is_alive(last["daemon"]["pid"])


def test_the_tour_stops_its_daemon_after_a_failure_too(real: dict[str, str], home: Path) -> None:
    done = call(real, "quickstart", "--model", "./nothing", "--stop-after")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert not (home / "run" / "mtplxd.sock").exists()


def test_a_daemon_that_cannot_start_says_why(real: dict[str, str], home: Path) -> None:
    done = call({**real, "MTPLXD_DRAIN_S": "soon"}, "quickstart", "--model", "tiny")
    assert done.returncode == 2
    assert b"MTPLXD_DRAIN_S" in done.stderr
    (home / "run").mkdir()
    (home / "run").chmod(0o755)
    done = call(real, "quickstart", "--model", "tiny")
    assert done.returncode in (3, 4)
    assert done.stderr.count(b"\n") == 1
    assert b"run" in done.stderr


def test_every_command_on_one_daemon(real: dict[str, str], home: Path) -> None:
    document(real, "quickstart", "--model", "tiny", "--skip-tune")
    shutil.copytree(home / "packs" / "tiny", home / "packs" / "cut")
    (home / "packs" / "cut" / "model.safetensors").write_bytes(b"short")
    listed = document(real, "ls")
    assert [pack["name"] for pack in listed["packs"]] == ["tiny"]
    [cut] = listed["damaged"]
    assert (cut["name"], "model.safetensors" in cut["reason"]) == ("cut", True)
    assert document(real, "rm", "cut", "--yes")["name"] == "cut"
    assert document(real, "ls")["damaged"] == []
    assert document(real, "show", "tiny")["head_layout"] == "adapter"
    assert document(real, "load", "tiny", "--depth", "2", "--force")["state"] == "ready"
    assert [model["name"] for model in document(real, "ps")["models"]] == ["tiny"]
    answer = ("generate", "hi", "--force")
    greedy = [
        document(real, *answer, "--temperature", "0", "--depth", str(depth), "--max-tokens", "20")
        for depth in (0, 2)
    ]
    assert greedy[0]["tokens"] == greedy[1]["tokens"]
    assert greedy[0]["sampler"]["acceptance"] == "greedy"
    assert (greedy[0]["stats"]["depth"], greedy[1]["stats"]["depth"]) == (0, 2)
    assert call(real, *answer, "--depth", "99").returncode == 2
    assert call(real, *answer, "--temperature", "nan").returncode == 2
    assert call(real, *answer, "--top-p", "1.5").returncode == 2
    assert call(real, "generate", "hi", "--model", "nothing").returncode == 1
    assert call(real, "generate", "-", "--force", stdin=b"long " * 5000).returncode == 2
    chat = call(real, "chat", "--force", "--max-tokens", "5", stdin=b"hi\n/stats\n/exit\n")
    assert (chat.returncode, b"tok/s" in chat.stderr) == (0, True)
    assert document(real, "unload", "tiny")["bytes_freed"] > 0
    assert document(real, "rm", "tiny", "--yes")["name"] == "tiny"
    assert b"INFO" in call(real, "logs").stdout


def test_a_pack_that_nobody_verified_answers_only_when_told_to(real: dict[str, str]) -> None:
    document(real, "quickstart", "--model", "tiny", "--skip-tune")
    refused = [
        call(real, "generate", "hi", "--max-tokens", "2"),
        call(real, "chat", "--max-tokens", "2", stdin=b"hi\nhi\n"),
        call(real, "load", "tiny"),
    ]
    for done in refused:
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (3, b"", 1)
        assert b"`mtplx verify tiny`, or add --force" in done.stderr
    assert (
        call(real, "bench", "decode", "--model", "tiny", "--prompts", "1", "--max-tokens", "8").returncode
        == 0
    )
    assert (
        document(real, "verify", "tiny", "--samples", "1000", "--prompts", "1", "--max-tokens", "8")[
            "recorded"
        ]
        is True
    )
    assert document(real, "generate", "hi", "--max-tokens", "2")["usage"]["completion_tokens"] == 2
    assert call(real, "inspect", "tiny", "--check").returncode == 0


def test_a_damaged_pack_can_be_deleted_once_it_is_out_of_memory(real: dict[str, str], home: Path) -> None:
    document(real, "quickstart", "--model", "tiny", "--skip-tune")
    document(real, "load", "tiny", "--force")
    weights = home / "packs" / "tiny" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    busy = call(real, "rm", "tiny", "--yes")
    assert (busy.returncode, b"`mtplx unload tiny` first" in busy.stderr) == (3, True)
    document(real, "unload", "tiny")
    gone = document(real, "rm", "tiny", "--yes")
    assert gone["name"] == "tiny"
    assert gone["bytes_freed"] > 100
    assert not weights.parent.exists()


def test_ctrl_c_frees_the_real_daemon(real: dict[str, str], home: Path) -> None:
    document(real, "quickstart", "--model", "tiny", "--skip-tune")
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mtplx_client",
            "generate",
            "hi",
            "--force",
            "--ignore-eos",
            "--max-tokens",
            "1500",
            "--json",
        ],
        env=real,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    while b'"text"' not in child.stdout.readline():
        pass
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert json.loads(out.splitlines()[-1])["finish_reason"] == "cancelled"
    with Client(home=home) as client:
        for status in client.watch(interval_s=0.05, timeout=60):
            if status.queue.running == 0:
                break


def test_a_client_outlives_its_daemon(real: dict[str, str], home: Path) -> None:
    with Client(socket=home / "run" / "mtplxd.sock") as client:
        first = document(real, "quickstart", "--model", "tiny", "--skip-tune")["daemon"]["pid"]
        assert client.status().pid == first
        os.kill(first, signal.SIGKILL)
        second = document(real, "quickstart", "--model", "tiny", "--skip-tune")["daemon"]["pid"]
        assert client.status().pid == second
        assert (
            client.complete(
                "hi", model="tiny", max_tokens=3, force=True, ignore_eos=True
            ).usage.completion_tokens
            == 3
        )
