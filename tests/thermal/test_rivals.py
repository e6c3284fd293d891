"""Another tool that rules the fans is found where it listens, in its old place or its new one, as long as it does."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from mtplxd.thermal import rivals
from mtplxd.thermal.rivals import find_rival


@pytest.fixture
def places(folder: Path) -> tuple[tuple[str, Path], ...]:
    return (("Tool", folder / "new.sock"), ("Tool", folder / "old.sock"))


@pytest.mark.parametrize("place", [0, 1])
def test_one_that_listens_is_named_with_its_place(places: tuple[tuple[str, Path], ...], place: int) -> None:
    assert find_rival(places) == ""
    path = places[place][1]
    with socket.socket(socket.AF_UNIX) as tool:
        tool.bind(str(path))
        tool.listen()
        assert find_rival(places) == f"Tool answers at {path}"
    assert find_rival(places) == "", "its socket lies there, and nobody listens"


def test_a_file_that_is_no_socket_is_nobody(places: tuple[tuple[str, Path], ...]) -> None:
    places[0][1].write_text("")
    assert find_rival(places) == ""


def test_one_that_lets_nobody_in_is_there_all_the_same(
    places: tuple[tuple[str, Path], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_probe: object, _path: str) -> None:
        raise PermissionError

    with socket.socket(socket.AF_UNIX) as tool:
        tool.bind(str(places[0][1]))
        tool.listen()
        monkeypatch.setattr(rivals.socket.socket, "connect", refuse)
        assert find_rival(places) == f"Tool answers at {places[0][1]}"


def test_both_places_of_each_tool_are_looked_at() -> None:
    assert [str(path) for _, path in rivals.SOCKETS] == [
        "/var/run/thermalforge.sock", "/tmp/thermalforge.sock",
    ]  # fmt: skip
