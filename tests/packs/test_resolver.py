"""A name means one folder in every command: a path, a pack of the home, or a cached snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.errors import DataLoss, FailedPrecondition, InvalidArgument, NotFound
from mtplxd.packs.catalogue import SOURCES
from mtplxd.packs.manifest import Manifest, write_manifest
from mtplxd.packs.resolver import anchor, list_packs, remove_pack, resolve, scan_packs
from mtplxd.paths import Home, HuggingFace
from support.tiny_pack import make_tiny_pack


def cache(folder: Path) -> HuggingFace:
    return HuggingFace(cache=folder, token=None, endpoint=None, offline=True)


@pytest.fixture
def tiny(home: Home) -> Path:
    return make_tiny_pack(home.packs / "tiny")


@pytest.mark.usefixtures("tiny")
def test_every_listed_name_resolves_to_what_is_listed(home: Home) -> None:
    make_tiny_pack(home.packs / "Another-2.b_x", head=False)
    listed = list_packs(home)
    assert [pack.name for pack in listed] == ["Another-2.b_x", "tiny"]
    assert [resolve(pack.name, home) for pack in listed] == listed


@pytest.mark.usefixtures("tiny")
def test_unfinished_and_damaged_folders_are_never_listed(home: Home) -> None:
    make_tiny_pack(home.packs / ".partial-half" / "pack")
    make_tiny_pack(home.packs / ".trash-old")
    broken = make_tiny_pack(home.packs / "broken")
    (broken / "model.safetensors").write_bytes((broken / "model.safetensors").read_bytes()[:-5])
    (home.packs / "empty").mkdir()
    (home.packs / "a-file").write_text("x")
    assert [pack.name for pack in list_packs(home)] == ["tiny"]
    whole, damaged = scan_packs(home)
    assert whole == list_packs(home)
    assert sorted(damaged) == ["broken", "empty"]
    assert "model.safetensors" in str(damaged["broken"])
    assert "no config.json" in str(damaged["empty"])
    with pytest.raises(DataLoss, match=r"model\.safetensors"):
        resolve("broken", home)


def test_path_means_that_path_even_beside_a_pack_of_the_same_name(
    home: Home, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = make_tiny_pack(tmp_path / "tiny", seed=4)
    assert resolve(str(elsewhere), home).path == elsewhere
    monkeypatch.chdir(tmp_path)
    assert resolve("./tiny", home).path == elsewhere
    assert resolve("tiny", home).path == tiny
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/tiny", home).path == elsewhere


def test_snapshot_in_the_cache_is_used_in_place(home: Home, tmp_path: Path) -> None:
    repo = tmp_path / "hub" / "models--org--name"
    snapshot = make_tiny_pack(repo / "snapshots" / "abc")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc\n")
    pack = resolve("org/name", home, cache(tmp_path / "hub"))
    assert (pack.name, pack.path) == ("org/name", snapshot)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("commit", ["gone", "../../../tiny", ""])
def test_reference_that_leads_nowhere_is_not_followed(home: Home, tmp_path: Path, commit: str) -> None:
    refs = tmp_path / "hub" / "models--org--name" / "refs"
    refs.mkdir(parents=True)
    (refs.parent / "snapshots").mkdir()
    (refs / "main").write_text(commit)
    with pytest.raises((NotFound, DataLoss)):
        resolve("org/name", home, cache(tmp_path / "hub"))


@pytest.mark.usefixtures("tiny")
def test_unknown_name_suggests_a_near_one(home: Home) -> None:
    with pytest.raises(NotFound, match=r"\(tinny\): did you mean tiny\?"):
        resolve("tinny", home)


def test_name_of_the_catalogue_says_how_to_fetch_it(home: Home) -> None:
    with pytest.raises(NotFound, match="mtplx pull smollm2-135m"):
        resolve("smollm2-135m", home)


@pytest.mark.parametrize(
    "name",
    [
        "zzz",
        "../../etc",
        "a/b/c",
        ".partial-x",
        "org/none",
        "\x00",
        "a\nb",
        "a" * 3000,
        "/x\x00",
        "/" + "a" * 3000,
        "~nobody/x",
    ],
)
def test_unknown_names_are_not_found(home: Home, tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound) as raised:
        resolve(name, home, cache(tmp_path))
    assert "\n" not in str(raised.value)


def test_empty_name(home: Home) -> None:
    with pytest.raises(InvalidArgument):
        resolve(" ", home)


def test_reserved_name_does_not_pass_for_other_weights(home: Home) -> None:
    folder = make_tiny_pack(home.packs / "smollm2-135m")
    with pytest.raises(FailedPrecondition, match="weights its name stands for"):
        resolve("smollm2-135m", home)
    assert list_packs(home) == []
    recorded = {"format": 1, "fingerprint": {"body": SOURCES["smollm2-135m"].body_fingerprint}}
    write_manifest(folder, Manifest({"mtplxd": recorded}))
    assert resolve("smollm2-135m", home).path == folder


def test_pack_for_a_newer_engine_is_refused_before_any_weight_is_read(home: Home, tiny: Path) -> None:
    write_manifest(tiny, Manifest({"mtplxd": {"format": 2}}))
    with pytest.raises(FailedPrecondition, match="update mtplxd"):
        resolve("tiny", home)


def test_removing_frees_the_bytes_and_leaves_the_rest(home: Home, tiny: Path) -> None:
    kept = make_tiny_pack(home.packs / "kept")
    make_tiny_pack(home.packs / ".trash-cut-short")
    size = sum(file.stat().st_size for file in tiny.iterdir())
    assert remove_pack("tiny", home) == size
    assert sorted(entry.name for entry in home.packs.iterdir()) == [kept.name]


def test_damaged_pack_can_be_removed(home: Home, tiny: Path) -> None:
    (tiny / "config.json").write_text("{")
    assert remove_pack("tiny", home) > 0
    assert not tiny.exists()


@pytest.mark.parametrize("name", ["none", "../packs/tiny", "", ".", ".partial-x"])
def test_only_packs_of_the_home_are_removed(home: Home, tiny: Path, name: str) -> None:
    refused = NotFound if name == "none" else FailedPrecondition
    with pytest.raises(refused, match="no such model" if name == "none" else "only packs in the home"):
        remove_pack(name, home)
    assert tiny.is_dir()


def test_client_sends_folders_as_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "x").mkdir(parents=True)
    assert anchor("models/x") == str(tmp_path / "models" / "x")
    assert anchor("./y") == str(tmp_path / "y")
    assert anchor("models") == "models"
    assert anchor("org/name") == "org/name"
