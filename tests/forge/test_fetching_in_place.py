"""A folder and a pack of the home are a build's source where they lie: nothing of them is copied or changed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from mtplxd.errors import Cancelled, DataLoss, NotFound, UnsupportedSource
from mtplxd.forge import fetching
from mtplxd.forge.fetching import Source, fetch_source
from mtplxd.packs.hub.record import PullRecord, describe, write_record
from mtplxd.paths import Home, HuggingFace
from support.published import NAME, published_files, put_in_cache

COMMIT = "c" * 40


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return published_files(tmp_path / "published")


@pytest.fixture
def fetch(home: Home, tmp_path: Path) -> Callable[..., Source]:
    hugging_face = HuggingFace(tmp_path / "cache", None, "http://127.0.0.1:1", offline=False)

    def run(ref: str, cancelled: Callable[[], bool] = lambda: False) -> Source:
        return fetch_source(ref, tmp_path / "run", home, hugging_face, lambda *_: None, cancelled)

    return run


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def hashes(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def test_a_folder_is_used_where_it_lies(
    fetch: Callable[..., Source], files: dict[str, bytes], tmp_path: Path
) -> None:
    others = {"notes.txt": b"mine", "pytorch_model.bin": b"pickle", "deep/er/model.py": b"code"}
    folder = write(tmp_path / "mine", files | others)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    source = fetch(str(folder))
    assert source.path == folder
    assert source.files == hashes(files)
    assert source.bytes == sum(map(len, files.values()))
    assert (source.repo, source.revision) == (None, None)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert not (tmp_path / "run").exists()


def test_a_pack_of_the_home_says_where_it_was_published(
    fetch: Callable[..., Source], files: dict[str, bytes], home: Home
) -> None:
    contract = {"forge_provenance": {"source_repo": "pypi:some-wheel", "source_sha": "b" * 64}}
    write(home.packs / "mine", {**files, "mtplx_runtime.json": json.dumps(contract).encode()})
    source = fetch("mine")
    assert source.path == home.packs / "mine"
    assert (source.repo, source.revision) == ("pypi:some-wheel", "b" * 64)


def test_a_pulled_pack_is_used_and_its_known_hashes_are_not_made_again(
    fetch: Callable[..., Source], files: dict[str, bytes], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(home.packs / "org--name", files)
    right = hashes(files)
    kept = {name: describe(folder / name, right[name]) for name in files}
    write_record(folder, PullRecord(NAME, COMMIT, "huggingface.co", kept))
    read: list[str] = []
    hash_of = fetching.hash_of

    def watch(path: Path, *rest: object) -> str:
        read.append(path.name)
        return hash_of(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fetching, "hash_of", watch)
    source = fetch(NAME)
    assert (source.path, source.repo, source.revision) == (folder, NAME, COMMIT)
    assert source.files == right
    assert read == ["mtplx_runtime.json"], "records made here are written to it"
    (folder / "model.safetensors").write_bytes(files["model.safetensors"][:-1])
    with pytest.raises(DataLoss, match="pull it again"):
        fetch(NAME)


def test_a_snapshot_given_by_its_path_names_its_repository_and_commit(
    fetch: Callable[..., Source], files: dict[str, bytes], tmp_path: Path
) -> None:
    source = fetch(str(put_in_cache(tmp_path / "cache", files, COMMIT)))
    assert (source.repo, source.revision) == (NAME, COMMIT)
    assert source.files == hashes(files)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "pytorch_model.bin is no safetensors file"),
        ({"model.gguf": b"GGUF"}, "no model in this repository"),
        ({}, "no model in this repository"),
    ],
)
def test_a_folder_of_which_no_pack_can_be_made(
    fetch: Callable[..., Source], tmp_path: Path, files: dict[str, bytes], why: str
) -> None:
    (tmp_path / "strange").mkdir()
    write(tmp_path / "strange", files)
    with pytest.raises(UnsupportedSource, match=why):
        fetch(str(tmp_path / "strange"))


def test_a_name_that_means_nothing_here(fetch: Callable[..., Source], tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no such folder .*nowhere"):
        fetch(str(tmp_path / "nowhere"))
    with pytest.raises(NotFound, match="did you mean smollm2-135m"):
        fetch("smollm2-135")
    with pytest.raises(NotFound, match="`mtplx pull smollm2-135m`"):
        fetch("smollm2-135m")


def test_a_cancel_is_heard_while_files_are_read(
    fetch: Callable[..., Source], files: dict[str, bytes], tmp_path: Path
) -> None:
    folder = write(tmp_path / "mine", files)
    with pytest.raises(Cancelled):
        fetch(str(folder), cancelled=lambda: True)


def test_a_file_that_goes_away_is_named(
    fetch: Callable[..., Source], files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "mine", files)
    hash_of = fetching.hash_of

    def lose(path: Path, *rest: object) -> str:
        shutil.rmtree(folder)
        return hash_of(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fetching, "hash_of", lose)
    with pytest.raises(DataLoss, match=r"cannot read a file .*mine/.*No such file"):
        fetch(str(folder))
