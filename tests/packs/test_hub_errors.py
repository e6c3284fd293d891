"""Each way the Hub can fail is one clear line of the right kind."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition, InvalidArgument, MtplxError, NotFound, Unavailable
from mtplxd.packs.hub import repository as hub_room
from mtplxd.packs.hub.errors import AnotherFile
from mtplxd.packs.hub.names import parse_repository
from mtplxd.packs.hub.repository import open_repository
from mtplxd.paths import HuggingFace
from support.hub_server import Fault, HubServer

NAME = "org/name"


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as hub:
        hub.add(NAME, {"config.json": b"{}", "model.safetensors": b"weights"})
        yield hub


def look_up(url: str, name: str = NAME) -> None:
    repository = open_repository(parse_repository(name), HuggingFace(Path("/nowhere"), None, url, False))
    with repository.stream("model.safetensors", 0, 7, 5.0) as pieces:
        b"".join(pieces)


def refusal(url: str, kind: type[MtplxError], name: str = NAME) -> str:
    with pytest.raises(kind) as raised:
        look_up(url, name)
    text = str(raised.value)
    assert type(raised.value) is kind
    assert "\n" not in text
    assert raised.value.fix
    return text


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, NotFound),
        (403, FailedPrecondition),
        (404, NotFound),
        (400, Unavailable),
        (418, Unavailable),
        (429, Unavailable),
        (500, Unavailable),
        (502, Unavailable),
        (503, Unavailable),
    ],
)
def test_a_refused_look_up(hub: HubServer, status: int, kind: type[MtplxError]) -> None:
    hub.repositories[NAME].refuses = status
    assert NAME in (text := refusal(hub.url, kind)) or str(status) in text or "127.0.0.1" in text


@pytest.mark.parametrize(
    ("status", "kind"), [(403, FailedPrecondition), (404, NotFound), (416, AnotherFile), (500, Unavailable)]
)
def test_a_refused_file(hub: HubServer, status: int, kind: type[MtplxError]) -> None:
    hub.repositories[NAME].faults["model.safetensors"] = Fault(status=status)
    refusal(hub.url, kind)


def test_a_file_shorter_than_listed_is_named(hub: HubServer) -> None:
    hub.repositories[NAME].faults["model.safetensors"] = Fault(status=416)
    said = refusal(hub.url, AnotherFile)
    assert "the Hub sent another file than it lists (model.safetensors of org/name)" in said


def test_a_gated_repository_names_the_page_of_its_terms(hub: HubServer) -> None:
    hub.repositories[NAME].gated = "hf_token"
    assert "https://huggingface.co/org/name" in refusal(hub.url, FailedPrecondition)


def test_a_repository_and_a_revision_that_are_not_there(hub: HubServer) -> None:
    assert "org/none" in refusal(hub.url, NotFound, "org/none")
    assert "no such revision (org/name@v9)" in refusal(hub.url, NotFound, "org/name@v9")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert f"cannot reach (127.0.0.1:{port})" in refusal(f"http://127.0.0.1:{port}", Unavailable)


def test_a_name_that_no_server_has() -> None:
    refusal("http://hub.invalid", Unavailable)


def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_room, "LOOK_UP_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert "no answer in time" in refusal(url, Unavailable)


def test_something_else_than_a_hub_answers(hub: HubServer) -> None:
    refusal(hub.storage_url, NotFound)
    hub.replies = b"<html>please log in to this hotel's network</html>"
    assert "no Hub answers there" in refusal(hub.url, Unavailable)
    hub.replies = b'{"siblings": [{"rfilename": "config.json"}], "id": "org/name", "sha": "x"}'
    assert "no Hub answers there" in refusal(hub.url, Unavailable)


@pytest.mark.parametrize(
    "address", ["huggingface.co", "ftp://host", "http://", "http://host:port", "file:///x"]
)
def test_an_address_that_is_none(address: str) -> None:
    assert "HF_ENDPOINT" in refusal(address, InvalidArgument)


def test_a_password_in_the_address_is_not_shown() -> None:
    assert "secret" not in refusal("http://user:secret@127.0.0.1:1", Unavailable)
