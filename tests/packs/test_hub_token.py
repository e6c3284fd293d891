"""The user's token goes to the Hub itself and nowhere else: no mirror, no storage, no argument, no output."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.errors import Cancelled, FailedPrecondition, NotFound, Unavailable
from mtplxd.packs.pull import pull
from mtplxd.paths import Home
from support.hub_server import Fault, HubServer
from support.published import NAME, published_files
from support.tls_hub import CERTIFICATE, TlsHub, tls_hub

TOKEN = "hf_" + "A" * 34


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer() as hub:
        hub.add(NAME, published_files(tmp_path / "published"))
        for name in (
            "HF_ENDPOINT",
            "HF_HUB_CACHE",
            "HF_HUB_OFFLINE",
            "HTTPS_PROXY",
            "https_proxy",
            "SSL_CERT_FILE",
        ):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield hub


@pytest.fixture
def itself(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[TlsHub]:
    """The same server as https://huggingface.co."""
    with tls_hub(hub.url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        yield proxy


def tokens(hub: HubServer, *, storage: bool) -> set[str | None]:
    return {asked.token for asked in hub.asked if asked.storage is storage}


def test_the_hub_gets_the_token_and_its_storage_does_not(hub: HubServer, itself: TlsHub, home: Home) -> None:
    hub.repositories[NAME].gated = TOKEN
    assert pull(NAME, home).name == NAME
    assert set(itself.hosts) == {"huggingface.co:443"}
    assert tokens(hub, storage=False) == {f"Bearer {TOKEN}"}
    assert tokens(hub, storage=True) == {None}


@pytest.mark.usefixtures("itself")
def test_the_token_of_a_login_is_used_where_no_variable_is_set(
    hub: HubServer, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text(TOKEN)
    hub.repositories[NAME].private = TOKEN
    assert pull(NAME, home).name == NAME
    assert tokens(hub, storage=False) == {f"Bearer {TOKEN}"}


def test_a_mirror_never_gets_the_token(
    hub: HubServer, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url + "/")
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text(TOKEN)
    pull(NAME, home)
    assert tokens(hub, storage=False) | tokens(hub, storage=True) == {None}
    assert not [value for asked in hub.asked for value in asked.headers.values() if TOKEN in value]
    hub.add("org/other", {}).gated = TOKEN
    hub.repositories["org/other"].private = TOKEN
    with pytest.raises(NotFound, match="a mirror gets no token"):
        pull("org/other", home)


@pytest.mark.usefixtures("itself")
def test_the_token_is_in_no_argument_of_a_process(hub: HubServer, home: Home) -> None:
    hub.repositories[NAME].faults["model.safetensors"] = Fault(hold=threading.Event(), times=1)
    seen: list[bytes] = []

    def look() -> bool:
        if hub.held.is_set():
            children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
            pids = [pid for path in children for pid in path.read_text().split()]
            seen.extend(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
        return bool(seen)

    if not Path("/proc/self/cmdline").exists():
        pytest.skip("this system shows no arguments under /proc")
    with pytest.raises(Cancelled):
        pull(NAME, home, cancelled=look)
    assert any(b"hub.fetch" in line for line in seen)
    assert not [line for line in seen if TOKEN.encode() in line]


@pytest.mark.usefixtures("itself")
@pytest.mark.parametrize("kept", ["gated", "private"])
def test_a_refusal_says_what_to_do_and_not_the_token(
    hub: HubServer, home: Home, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    setattr(hub.repositories[NAME], kept, "hf_another")
    with pytest.raises((FailedPrecondition, NotFound)) as raised:
        pull(NAME, home)
    assert TOKEN not in str(raised.value)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises((FailedPrecondition, NotFound), match="HF_TOKEN"):
        pull(NAME, home)


def test_a_certificate_that_is_not_trusted_names_the_remedy(
    hub: HubServer, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tls_hub(hub.url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(
            Unavailable, match=r"certificate is not trusted \(huggingface.co\).*SSL_CERT_FILE"
        ):
            pull(NAME, home)
    assert hub.asked == []
