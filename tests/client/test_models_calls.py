"""Packs, models in memory and the daemon itself."""

from __future__ import annotations

import threading

import pytest
from mtplx_client import Client, Progress
from mtplx_client.errors import Unavailable
from mtplx_proto.v1 import common_pb2, models_pb2
from support.fake_daemon import FakeDaemon


def test_pull_tells_progress_and_returns_the_pack(client: Client, daemon: FakeDaemon) -> None:
    daemon.progress = [common_pb2.Progress(stage="fetch", done=5, total=10, unit="bytes", eta_s=3)]
    steps: list[Progress] = []
    pack = client.pull("smollm2-135m", on_progress=steps.append)
    assert steps == [Progress("fetch", 5, 10, "bytes", "", 3.0)]
    assert (pack.name, pack.bytes, pack.family, pack.tier) == (
        "smollm2-135m",
        276_000_000,
        "llama",
        "unverified",
    )


def test_load_sends_what_was_asked(client: Client, daemon: FakeDaemon) -> None:
    model = client.load("smollm2-135m", keep_alive_s=0, depth=2, depth_max=4, force=True, plain=True)
    (asked,) = daemon.requests("Load")
    assert asked.HasField("keep_alive_s")
    assert (asked.keep_alive_s, asked.depth.fixed, asked.depth_max) == (0, 2, 4)
    assert asked.force
    assert asked.plain
    assert (model.name, model.state, model.depth_max) == ("smollm2-135m", "ready", 8)


def test_load_leaves_out_what_was_not_asked(client: Client, daemon: FakeDaemon) -> None:
    client.load("smollm2-135m")
    (asked,) = daemon.requests("Load")
    assert not asked.HasField("keep_alive_s")
    assert not asked.HasField("depth")
    assert not asked.HasField("depth_max")


def test_ls_show_rm_unload_ps(client: Client, daemon: FakeDaemon) -> None:
    assert [pack.name for pack in client.ls()] == ["smollm2-135m"]
    daemon.damaged.append(models_pb2.Damaged(name="cut", reason="too short"))
    assert client.ls() == client.listing().packs
    assert [(one.name, one.reason) for one in client.listing().damaged] == [("cut", "too short")]
    assert client.show("smollm2-135m").manifest_json == '{"arch_id": "llama"}'
    assert client.rm("smollm2-135m").bytes_freed == 276_000_000
    assert client.unload("smollm2-135m").bytes_freed == 552_000_000
    assert [model.keep_alive_s for model in client.ps()] == [-1]


def test_cancel_says_whether_the_request_was_known(client: Client) -> None:
    assert client.cancel("r1") is True
    assert client.cancel("r2") is False


def test_wait_ready_waits_through_the_start(client: Client, daemon: FakeDaemon) -> None:
    daemon.status.state = "starting"
    seen = 0

    def count() -> None:
        nonlocal seen
        seen += 1
        if seen == 3:
            daemon.status.state = "serving"

    daemon.on_enter = count
    assert client.wait_ready(timeout=30).state == "serving"
    assert seen == 3


def test_wait_ready_gives_up_with_the_state_it_saw(client: Client, daemon: FakeDaemon) -> None:
    daemon.status.state = "draining"
    with pytest.raises(Unavailable, match=r"not ready in time \(draining\)"):
        client.wait_ready(timeout=0)


def test_a_closed_client_opens_again(client: Client) -> None:
    client.status()
    client.close()
    assert client.status().pid == 4321


def test_wait_ready_bears_a_daemon_that_does_not_answer(client: Client, daemon: FakeDaemon) -> None:
    release = threading.Event()
    daemon.on_enter = lambda: release.wait(30)
    with pytest.raises(Unavailable, match="not ready in time"):
        client.wait_ready(timeout=0)
    release.set()
