"""A pull from the Hub gives a whole pack, with its head, of the published bytes and of nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.errors import DataLoss, FailedPrecondition, NotFound, ResourceExhausted, Unavailable
from mtplxd.packs import landing
from mtplxd.packs.detector import detect_head
from mtplxd.packs.hub import gather
from mtplxd.packs.hub.names import RepositoryName
from mtplxd.packs.hub.record import read_record
from mtplxd.packs.hub.repository import open_repository
from mtplxd.packs.layouts.gemma import ASSISTANTS
from mtplxd.packs.manifest import read_manifest, write_manifest
from mtplxd.packs.pull import pull
from mtplxd.packs.resolver import list_packs, remove_pack, resolve, scan_packs
from mtplxd.paths import Home, resolve_hugging_face
from support.hub_server import Fault, HubServer
from support.published import NAME, UNWANTED, published_files, put_in_cache


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return published_files(tmp_path / "published")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def hub(
    files: dict[str, bytes], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HubServer]:
    with HubServer() as hub:
        hub.add(NAME, files | UNWANTED)
        for name, value in {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_CACHE": str(cache),
            "HF_HUB_DOWNLOAD_TIMEOUT": "20",
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield hub


def commit_of(hub: HubServer, revision: str = "main") -> str:
    return hub.repositories[NAME].revisions[revision].sha


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_the_published_files_are_there_and_no_others(
    hub: HubServer, home: Home, files: dict[str, bytes]
) -> None:
    steps: list[tuple[str, int, int]] = []
    pack = pull(NAME, home, lambda *step: steps.append(step))
    got = contents(pack.path)
    assert json.loads(got.pop("mtplx_source.json"))["commit"] == commit_of(hub)
    assert got == files
    assert pack.name == NAME
    assert not [asked for asked in hub.asked for name in UNWANTED if asked.path.endswith(name)]
    assert detect_head(pack).present
    assert steps[0][0] == "check"
    assert steps[-1] == ("finish", 1, 1)
    total = sum(len(content) for content in files.values())
    assert ("fetch", total, total) in steps


@pytest.mark.usefixtures("hub")
def test_its_name_works_wherever_a_name_does(home: Home) -> None:
    pack = pull(NAME, home)
    assert [found.name for found in list_packs(home)] == [NAME]
    assert resolve(NAME, home) == pack
    assert resolve(str(pack.path), home).path == pack.path
    assert remove_pack(NAME, home) > 400_000
    assert list_packs(home) == []
    with pytest.raises(NotFound, match=f"fetch it with `mtplx pull {NAME}`"):
        resolve(NAME, home)


@pytest.mark.parametrize(
    "place", ["mtp/weights.safetensors", "model-mtp.safetensors", "heads/own.safetensors"]
)
def test_a_head_that_usual_patterns_skip_is_fetched(
    hub: HubServer, home: Home, files: dict[str, bytes], place: str
) -> None:
    files[place] = files.pop("mtp.safetensors")
    if place.startswith("heads/"):
        config = json.loads(files["config.json"])
        files["config.json"] = json.dumps({**config, "mlx_lm_extra_tensors": {"mtp_file": place}}).encode()
    hub.add(NAME, files)
    pack = pull(NAME, home)
    assert pack.sidecar == pack.path / place
    assert detect_head(pack).present


def test_a_revision_is_pulled_beside_the_main_one(hub: HubServer, home: Home, tmp_path: Path) -> None:
    other = published_files(tmp_path / "other", seed=1)
    hub.add(NAME, other, revision="refs/pr/1")
    main, second = pull(NAME, home), pull(f"{NAME}@refs/pr/1", home)
    assert second.name == f"{NAME}@refs/pr/1"
    assert {pack.name for pack in list_packs(home)} == {main.name, second.name}
    assert (second.path / "model.safetensors").read_bytes() == other["model.safetensors"]
    record = read_record(second.path)
    assert record is not None
    assert record.commit == commit_of(hub, "refs/pr/1")
    assert resolve(f"{NAME}@refs/pr/1", home).path == second.path


def test_a_second_pull_asks_once_and_fetches_nothing(hub: HubServer, home: Home) -> None:
    pull(NAME, home)
    asked = len(hub.asked)
    pull(NAME, home)
    assert len(hub.asked) == asked + 1


def test_a_pinned_pack_that_is_whole_needs_no_network(hub: HubServer, home: Home) -> None:
    name = f"{NAME}@{commit_of(hub)}"
    pack = pull(name, home)
    asked = len(hub.asked)
    assert pull(name, home) == pack
    assert len(hub.asked) == asked


def test_a_new_commit_replaces_the_pack_and_keeps_what_did_not_change(
    hub: HubServer, home: Home, files: dict[str, bytes], tmp_path: Path
) -> None:
    old = pull(NAME, home)
    body = (old.path / "model.safetensors").stat().st_ino
    head = published_files(tmp_path / "other", seed=1)["mtp.safetensors"]
    hub.add(NAME, {**files, "mtp.safetensors": head})
    hub.asked.clear()
    new = pull(NAME, home)
    assert (new.path / "mtp.safetensors").read_bytes() == head
    assert (new.path / "model.safetensors").stat().st_ino == body
    assert hub.asked_for("model.safetensors") == []
    assert [entry.name for entry in home.packs.iterdir()] == [new.path.name]


def test_an_update_that_fails_keeps_the_old_pack(
    hub: HubServer, home: Home, files: dict[str, bytes], tmp_path: Path
) -> None:
    old = contents(pull(NAME, home).path)
    head = published_files(tmp_path / "other", seed=1)["mtp.safetensors"]
    hub.add(NAME, {**files, "mtp.safetensors": head}).faults["mtp.safetensors"] = Fault(
        sends=head[:-1] + b"x"
    )
    with pytest.raises(DataLoss):
        pull(NAME, home)
    assert contents(resolve(NAME, home).path) == old


def test_a_damaged_file_is_not_listed_and_the_next_pull_mends_it(
    hub: HubServer, home: Home, files: dict[str, bytes]
) -> None:
    pack = pull(NAME, home)
    (pack.path / "model.safetensors").write_bytes(files["model.safetensors"][:-5])
    assert list_packs(home) == []
    assert "another size" in str(scan_packs(home)[1]["org--name"])
    hub.asked.clear()
    pull(NAME, home)
    assert contents(pack.path)["model.safetensors"] == files["model.safetensors"]
    assert hub.asked_for("mtp.safetensors") == []
    changed = bytearray(files["mtp.safetensors"])
    changed[-1] ^= 1
    (pack.path / "mtp.safetensors").write_bytes(changed)
    pull(NAME, home)
    assert contents(pack.path)["mtp.safetensors"] == files["mtp.safetensors"]


def test_a_verification_made_here_is_neither_lost_nor_taken_for_damage(
    hub: HubServer, home: Home, files: dict[str, bytes]
) -> None:
    pack = pull(NAME, home)
    manifest = read_manifest(pack.path)
    assert manifest is not None
    write_manifest(pack.path, manifest.with_ours(verification={"passed": True}))
    asked = len(hub.asked)
    pull(NAME, home)
    assert len(hub.asked) == asked + 1
    hub.add(NAME, {**files, "README.md": b"# newer"})
    manifest = pull(NAME, home).manifest
    assert manifest is not None
    assert manifest.verification == {"passed": True}


def test_a_folder_of_the_user_is_never_replaced(hub: HubServer, home: Home) -> None:
    mine = home.packs / "org--name" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(FailedPrecondition, match="something else is where this pack belongs"):
        pull(NAME, home)
    assert mine.read_text() == "mine"
    assert hub.asked == []


def test_a_snapshot_in_the_cache_is_used_in_place(
    hub: HubServer, home: Home, files: dict[str, bytes], cache: Path
) -> None:
    snapshot = put_in_cache(cache, files, commit_of(hub))
    before = {path: path.lstat().st_mtime_ns for path in cache.rglob("*")}
    hub.asked.clear()
    pack = pull(NAME, home)
    weights = pack.path / "model.safetensors"
    assert weights.samefile(snapshot / "model.safetensors")
    assert not (pack.path / "mtplx_runtime.json").is_symlink(), "records made here must not reach the cache"
    assert sum(path.lstat().st_size for path in pack.path.iterdir()) < 5_000
    assert [asked.path for asked in hub.asked if asked.path.endswith(".safetensors")] == []
    assert {path: path.lstat().st_mtime_ns for path in cache.rglob("*")} == before
    remove_pack(NAME, home)
    assert (snapshot / "model.safetensors").read_bytes() == files["model.safetensors"]


def test_what_the_cache_lacks_is_fetched_and_what_is_damaged_in_it_is_not_used(
    hub: HubServer, home: Home, files: dict[str, bytes], cache: Path
) -> None:
    there = {name: content for name, content in files.items() if name != "mtp.safetensors"}
    snapshot = put_in_cache(cache, there, commit_of(hub))
    damaged = bytearray(files["tokenizer.json"])
    damaged[10] ^= 1
    (snapshot / "tokenizer.json").write_bytes(damaged)
    pack = pull(NAME, home)
    got = contents(pack.path)
    assert {name: got[name] for name in files} == files
    assert (pack.path / "model.safetensors").is_symlink()
    assert not (pack.path / "mtp.safetensors").is_symlink()
    assert not (pack.path / "tokenizer.json").is_symlink()


def test_a_cache_that_was_cleared_leaves_a_broken_pack_that_a_pull_mends(
    hub: HubServer, home: Home, files: dict[str, bytes], cache: Path
) -> None:
    put_in_cache(cache, files, commit_of(hub))
    pull(NAME, home)
    shutil.rmtree(cache)
    assert list_packs(home) == []
    with pytest.raises(DataLoss, match="pull it again"):
        resolve(NAME, home)
    assert contents(pull(NAME, home).path)["model.safetensors"] == files["model.safetensors"]


def test_without_a_network_the_cache_is_enough(
    hub: HubServer, home: Home, files: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Unavailable, match="HF_HUB_OFFLINE"):
        pull(NAME, home)
    commit = commit_of(hub)
    snapshot = put_in_cache(
        cache, {name: text for name, text in files.items() if "model" not in name}, commit
    )
    with pytest.raises(Unavailable, match="only a part of it"):
        pull(NAME, home)
    shutil.rmtree(snapshot)
    put_in_cache(cache, files, commit)
    pack = pull(NAME, home)
    record = read_record(pack.path)
    assert record is not None
    assert record.commit == commit
    assert pull(NAME, home) == pack
    assert hub.asked == []


def test_a_damaged_cache_is_no_source_without_a_network(
    hub: HubServer, home: Home, files: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = put_in_cache(cache, files, commit_of(hub))
    content = bytearray(files["model.safetensors"])
    content[-1] ^= 1
    (snapshot / "model.safetensors").write_bytes(content)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Unavailable, match=r"damaged.*model.safetensors.*HF_HUB_OFFLINE"):
        pull(NAME, home)
    assert list_packs(home) == []
    assert hub.asked == []


def test_wrong_bytes_are_fetched_again_and_then_refused(hub: HubServer, home: Home) -> None:
    repository, name = hub.repositories[NAME], "model.safetensors"
    content = repository.revisions["main"].files[name]
    wrong = content.read(0, content.size - 1) + b"\0"
    repository.faults[name] = Fault(sends=wrong, times=1)
    pack = pull(NAME, home)
    assert (pack.path / name).read_bytes() == content.read(0, content.size)
    remove_pack(NAME, home)
    repository.faults[name] = Fault(sends=wrong)
    with pytest.raises(DataLoss, match=r"wrong hash.*model.safetensors of org/name"):
        pull(NAME, home)
    assert list_packs(home) == []


def test_a_config_of_other_bytes_decides_nothing(hub: HubServer, home: Home, files: dict[str, bytes]) -> None:
    other = files["config.json"].replace(b"llama", b"mamba")
    hub.repositories[NAME].faults["config.json"] = Fault(sends=other)
    with pytest.raises(DataLoss, match=r"another file than it lists.*config.json of org/name"):
        pull(NAME, home)


def test_a_disk_too_small_is_told_before_the_first_byte(
    hub: HubServer,
    files: dict[str, bytes],
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Path] = []

    def disk_usage(folder: Path) -> object:
        asked.append(Path(folder))
        return type("Usage", (), {"free": 100_000})()

    monkeypatch.setattr(landing.shutil, "disk_usage", disk_usage)
    arrivals = tmp_path / "arrivals"
    arrivals.mkdir()
    repository = open_repository(RepositoryName(NAME), resolve_hugging_face())
    wanted = [repository.files[name] for name in files]
    hub.asked.clear()
    with pytest.raises(ResourceExhausted, match="not enough disk space") as raised:
        gather.gather(repository, wanted, arrivals, cache, None, lambda *_: None, 5.0)
    assert raised.value.needed == sum(file.size for file in wanted)
    assert asked == [arrivals]
    assert hub.asked == []
    put_in_cache(cache, {"model.safetensors": files["model.safetensors"]}, commit_of(hub))
    with pytest.raises(ResourceExhausted) as raised:
        gather.gather(repository, wanted, arrivals, cache, None, lambda *_: None, 5.0)
    assert raised.value.needed == sum(file.size for file in wanted) - len(files["model.safetensors"])


def test_a_repository_without_a_model_is_refused_with_the_reason(hub: HubServer, home: Home) -> None:
    hub.add("org/pickles", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    with pytest.raises(FailedPrecondition, match=r"pytorch_model.bin is no safetensors file"):
        pull("org/pickles", home)
    hub.add("org/nothing", {"README.md": b"hello"})
    with pytest.raises(FailedPrecondition, match="it has no config"):
        pull("org/nothing", home)
    garbage = {
        "config.json": b'{"max_position_embeddings": 8}',
        "model.safetensors": b"garbage, but as published",
    }
    hub.add("org/garbage", garbage)
    with pytest.raises(
        FailedPrecondition, match=r"damaged.*\(model.safetensors of org/garbage\): .*publisher"
    ):
        pull("org/garbage", home)
    index = {"weight_map": {"a": "../../etc/passwd.safetensors"}}
    files = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode()}
    hub.add("org/outside", files)
    with pytest.raises(FailedPrecondition, match="outside the folder"):
        pull("org/outside", home)
    assert list_packs(home) == []


def test_names_that_lead_elsewhere_are_never_written(
    hub: HubServer, home: Home, files: dict[str, bytes]
) -> None:
    hub.add(NAME, {**files, "../evil.json": b"x", "/tmp/evil.jinja": b"x", "a\\..\\evil.jinja": b"x"})
    pack = pull(NAME, home)
    assert {path.name for path in pack.path.iterdir()} == {*files, "mtplx_source.json"}
    assert not list(home.root.rglob("*evil*"))


def test_a_pair_comes_whole(hub: HubServer, home: Home, files: dict[str, bytes]) -> None:
    config = json.loads(files["config.json"])
    drafter = {**files, "config.json": json.dumps({**config, "model_type": sorted(ASSISTANTS)[0]}).encode()}
    target = {f"target/{name}": content for name, content in files.items()}
    assistant = {f"assistant/{name}": content for name, content in drafter.items()}
    wanted = {"mtplx_pair.json": b"{}", "README.md": b"# pair", **target, **assistant}
    unwanted = {
        "target/modeling.py": b"x",
        "assistant/pytorch_model.bin": b"x",
        "else/model.safetensors": b"x",
    }
    hub.add("org/pair", wanted | unwanted)
    pack = pull("org/pair", home)
    got = contents(pack.path)
    del got["mtplx_source.json"]
    assert got == wanted
    assert pack.assistant is not None
    assert pack.model_path == pack.path / "target"
    assert resolve("org/pair", home) == pack
