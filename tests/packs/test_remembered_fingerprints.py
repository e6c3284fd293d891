"""A fingerprint outlives its process for files that stay as they are, and for no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.packs import fingerprint, remembered
from mtplxd.packs.folder import file_stamp
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.verified import fingerprint_of
from support.tiny_pack import make_tiny_pack

CACHES = (fingerprint._hash_body, fingerprint._hash_head, fingerprint._hash_built_in)


class Readings(list[str]):
    """Which weights were read."""


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    found, read = Readings(), fingerprint._hash_range

    def note(digest: object, path: Path, info: object) -> None:
        found.append(path.name)
        read(digest, path, info)  # type: ignore[arg-type]

    monkeypatch.setattr(fingerprint, "_hash_range", note)
    return found


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pack]:
    """A pack whose files count as settled, looked at by processes that keep what they find in `tmp_path`."""
    pack = read_pack(make_tiny_pack(tmp_path / "tiny"))
    monkeypatch.setattr(remembered, "SETTLED_NS", 0)
    remembered.keep_in(tmp_path)
    forget()
    yield pack
    remembered.keep_in(None)


def forget() -> None:
    """As a new process."""
    for cache in CACHES:
        cache.cache_clear()


def test_a_new_process_does_not_read_the_weights_again(
    pack: Pack, readings: Readings, tmp_path: Path
) -> None:
    before = fingerprint_of(pack)
    assert set(readings) == {"model.safetensors", "mtp.safetensors"}
    readings.clear()
    forget()
    assert fingerprint_of(pack) == before
    assert readings == []
    assert (tmp_path / remembered.FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_changed_file_is_read_again_and_the_other_is_not(pack: Pack, readings: Readings) -> None:
    before = fingerprint_of(pack)
    file = pack.path / "mtp.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    readings.clear()
    forget()
    after = fingerprint_of(read_pack(pack.path))
    assert (after["body"], after["head"] == before["head"]) == (before["body"], False)
    assert set(readings) == {"mtp.safetensors"}


def test_another_config_is_another_body(pack: Pack) -> None:
    before = fingerprint_of(pack)
    config = json.loads((pack.path / "config.json").read_text())
    (pack.path / "config.json").write_text(json.dumps({**config, "rope_theta": 5e5}))
    forget()
    assert fingerprint_of(read_pack(pack.path))["body"] != before["body"]


def test_files_that_were_just_written_are_not_kept(tmp_path: Path) -> None:
    remembered.keep_in(tmp_path)
    try:
        file = tmp_path / "file"
        file.write_bytes(b"1")
        stamps = {file: file_stamp(file)}
        born = max(stamps[file][1:3])
        ages = (remembered.SETTLED_NS - 1, remembered.SETTLED_NS, 2 * remembered.SETTLED_NS)
        made = [
            remembered.remembered(
                "kind", stamps, "", lambda age=age: str(age), now=lambda age=age: born + age
            )  # type: ignore[misc]
            for age in ages
        ]
        assert made == [str(ages[0]), str(ages[1]), str(ages[1])]
    finally:
        remembered.keep_in(None)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1}', b"\xff"])
def test_a_damaged_memory_costs_a_reading(
    pack: Pack, readings: Readings, tmp_path: Path, content: bytes
) -> None:
    before = fingerprint_of(pack)
    (tmp_path / remembered.FILE_NAME).write_bytes(content)
    readings.clear()
    forget()
    assert fingerprint_of(pack) == before
    assert readings


def test_a_memory_that_cannot_be_written_stops_nothing(pack: Pack, tmp_path: Path) -> None:
    remembered.keep_in(tmp_path / "gone")
    assert fingerprint_of(pack)["body"].startswith("sha256:")
    assert not (tmp_path / "gone").exists()


def test_the_oldest_go(pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "_MOST", 3)
    file = pack.path / "config.json"
    for number in range(5):
        remembered.remembered("kind", {file: file_stamp(file)}, str(number), lambda: "made")
    assert len(json.loads((tmp_path / remembered.FILE_NAME).read_text())) == 3
