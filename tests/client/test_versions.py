"""Client and daemon exchange versions; a mismatch says which side to update."""

from __future__ import annotations

import pytest
from mtplx_client import Client, VersionMismatch
from mtplxd import PROTOCOL, __version__
from support.fake_daemon import Failure, FakeDaemon


def test_every_call_says_who_calls(client: Client, daemon: FakeDaemon) -> None:
    client.status()
    client.complete("hi")
    assert [name for name, _ in daemon.asked] == ["Hello", "Status", "Generate"]
    for said in daemon.metadata:
        assert said["mtplx-protocol"] == str(PROTOCOL)
        assert said["mtplx-version"] == __version__
    assert len({said["mtplx-client"] for said in daemon.metadata}) == 1


def test_a_newer_daemon_means_update_the_client(client: Client, daemon: FakeDaemon) -> None:
    daemon.protocol, daemon.version = str(PROTOCOL + 1), "9.0.0"
    with pytest.raises(VersionMismatch, match=r"daemon 9\.0\.0.*update this client"):
        client.status()
    with pytest.raises(VersionMismatch, match="update this client"):
        client.complete("hi")


@pytest.mark.parametrize("protocol", ["0", None], ids=["older", "silent"])
def test_an_older_or_silent_daemon_means_update_the_daemon(
    client: Client, daemon: FakeDaemon, protocol: str | None
) -> None:
    daemon.protocol = protocol
    with pytest.raises(VersionMismatch, match="update the daemon and restart it"):
        client.status()


def test_another_version_of_the_same_protocol_is_fine(client: Client, daemon: FakeDaemon) -> None:
    daemon.version = "0.9.0"
    assert client.hello().version == "0.9.0"


def test_a_daemon_that_refuses_the_client_is_a_mismatch_too(client: Client, daemon: FakeDaemon) -> None:
    daemon.failures["Status"] = Failure(
        "FAILED_PRECONDITION",
        "client and daemon speak different protocols",
        "client 0.1.0, protocol 1",
        "update the client",
        reason="VERSION_MISMATCH",
    )
    with pytest.raises(VersionMismatch, match="update the client"):
        client.status()
