"""`mtplx pull org/name` as a user types it: a real daemon, a Hub of our own, exit codes and one clear line."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon_process import DaemonProcess, clean_environment, running_daemon
from support.hub_server import Fault, HubServer
from support.published import NAME, published_files

TOKEN = "hf_" + "B" * 34


@dataclasses.dataclass(frozen=True)
class Rig:
    """A Hub that a daemon knows as its mirror, and the command line of that daemon."""

    hub: HubServer
    daemon: DaemonProcess
    environment: dict[str, str]

    def __call__(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*argv), env=self.environment, capture_output=True, text=True, timeout=120
        )

    def command(self, *argv: str) -> list[str]:
        return [sys.executable, "-m", "mtplx_client", *argv]

    def document(self, *argv: str) -> Any:
        done = self(*argv, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return published_files(tmp_path / "published")


@pytest.fixture
def rig(home: Path, files: dict[str, bytes], tmp_path: Path) -> Iterator[Rig]:
    with HubServer() as hub:
        hub.add(NAME, files)
        mirror = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_TOKEN": TOKEN,
            "NO_PROXY": "127.0.0.1",
        }
        with running_daemon(home / "d", **mirror) as daemon:
            yield Rig(hub, daemon, clean_environment(home / "d", COLUMNS="80"))


def test_what_was_pulled_is_known_to_every_command(rig: Rig, files: dict[str, bytes]) -> None:
    pulled = rig.document("pull", NAME)
    assert (pulled["name"], pulled["family"], pulled["tier"]) == (NAME, "llama", "unverified")
    assert pulled["bytes"] >= sum(len(content) for content in files.values())
    assert [pack["name"] for pack in rig.document("ls")["packs"]] == [NAME]
    assert rig.document("show", NAME)["path"] == pulled["path"]
    assert rig.document("inspect", NAME)["head"]["present"] is True
    answer = rig.document("generate", "hi", "--model", NAME, "--plain", "--max-tokens", "4", "--ignore-eos")
    assert len(answer["tokens"]) == 4
    rig.document("unload", NAME)
    assert rig.document("rm", NAME, "--yes")["bytes_freed"] > 400_000
    assert rig.document("ls")["packs"] == []
    gone = rig("show", NAME)
    assert gone.returncode == 1
    assert gone.stderr == f"error: no such model here ({NAME}): fetch it with `mtplx pull {NAME}`\n"
    assert not [asked for asked in rig.hub.asked if asked.token]
    assert TOKEN not in rig.daemon.log()


@pytest.mark.parametrize(
    ("name", "refuses", "code", "line"),
    [
        ("org/none", 0, 1, "no such repository"),
        (f"{NAME}@v9", 0, 1, "no such revision"),
        (NAME, 403, 3, "the Hub refuses access"),
        (NAME, 500, 4, "the Hub fails"),
        ("org/pickles", 0, 3, "never opened"),
        ("org/gated", 0, 3, "this repository is gated"),
    ],
)
def test_a_refusal_is_one_line_and_its_exit_code(
    rig: Rig, name: str, refuses: int, code: int, line: str
) -> None:
    rig.hub.repositories[NAME].refuses = refuses
    rig.hub.add("org/pickles", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    rig.hub.add("org/gated", {"config.json": b"{}"}).gated = TOKEN
    done = rig("pull", name)
    assert (done.returncode, done.stdout) == (code, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert line in last
    assert "Traceback" not in done.stderr + rig.daemon.log()
    assert TOKEN not in done.stderr + rig.daemon.log()
    assert rig.document("ls")["packs"] == []


def test_a_hub_that_is_gone_is_unavailable_and_what_is_here_still_works(rig: Rig) -> None:
    rig.document("pull", NAME)
    rig.hub.close()
    done = rig("pull", NAME)
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1].startswith("error: cannot reach (127.0.0.1:")
    assert rig.document("load", NAME, "--plain")["name"] == NAME


def test_ctrl_c_stops_the_pull_and_the_next_one_goes_on(rig: Rig) -> None:
    rig.hub.repositories[NAME].faults["model.safetensors"] = Fault(hold=threading.Event(), times=1)
    command = rig.command("pull", NAME)
    process = subprocess.Popen(command, env=rig.environment, stderr=subprocess.PIPE, text=True)
    assert rig.hub.held.wait(60)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert rig.document("ls")["packs"] == []
    assert rig.document("pull", NAME)["name"] == NAME


def test_two_pulls_of_one_name_make_one_pack(rig: Rig) -> None:
    pulls = [
        subprocess.Popen(
            rig.command("pull", NAME, "--json"), env=rig.environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    documents = [json.loads(process.communicate(timeout=120)[0].splitlines()[-1]) for process in pulls]
    assert documents[0] == documents[1]
    assert len(rig.hub.asked_for("model.safetensors")) == 1
    assert os.listdir(rig.daemon.home / "packs") == ["org--name"]
