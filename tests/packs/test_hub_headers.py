"""A repository is judged from afar as a pull of it would be, by its configs and headers alone."""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.errors import DataLoss, FailedPrecondition, InvalidArgument, NotFound, Unavailable
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.hub import headers
from mtplxd.packs.hub.headers import BUDGET, HubFolder, open_folder
from mtplxd.packs.hub.plan import choose_wanted
from mtplxd.packs.pack import read_pack
from mtplxd.paths import HuggingFace
from support.hub_server import Fault, HubServer
from support.published import NAME, published_files
from support.published_keys import RELEASES, Release, write_release

FIRST = 16 * 1024


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as hub:
        yield hub


def settings(hub: HubServer, **changes: object) -> HuggingFace:
    return dataclasses.replace(HuggingFace(Path("/nowhere"), None, hub.url, False), **changes)  # type: ignore[arg-type]


def afar(hub: HubServer, name: str = NAME, budget: int = BUDGET) -> HubFolder:
    return open_folder(name, settings(hub), budget)


def publish(hub: HubServer, folder: Path) -> None:
    """The files of a folder; the sparse weights stay where they are."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    hub.add(
        NAME,
        {name: path if path.suffix == ".safetensors" else path.read_bytes() for name, path in files.items()},
    )


def without_places(report: HeadReport) -> dict[str, object]:
    fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    located = {name: info for name, (_, info) in fields.pop("located").items()}
    file = fields.pop("file")
    return {**fields, "located": located, "file": file.name if file else None}


def header_end(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int(struct.unpack("<Q", file.read(8))[0])


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_every_published_head_is_found_from_afar_as_it_is_on_disk(
    hub: HubServer, tmp_path: Path, release: Release
) -> None:
    local = write_release(tmp_path / "pack", release.config, release.keys)
    publish(hub, local)
    folder = afar(hub)
    here, there = read_pack(local, NAME), read_pack(folder, NAME)
    assert without_places(detect_head(there)) == without_places(detect_head(here))
    assert (there.config, there.manifest, there.bytes_body) == (here.config, here.manifest, here.bytes_body)
    assert folder.bytes_read < 1_000_000
    assert folder.bytes_total == sum(path.stat().st_size for path in local.iterdir())
    assert folder.commit == hub.repositories[NAME].revisions["main"].sha


def test_an_index_too_large_to_read_from_afar_is_fetched_and_its_files_known_by_their_names(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, shard = "model.safetensors.index.json", "model-00001-of-00001.safetensors"
    files = {
        "config.json": b"{}",
        index: json.dumps({"weight_map": {"a": shard}}).encode(),
        shard: b"x",
        "model.safetensors": b"a stray",
    }
    hub.add(NAME, files)
    folder = afar(hub)
    small = choose_wanted(folder, folder.files)
    monkeypatch.setattr(headers, "_LARGE_INDEX", 10)
    hub.asked.clear()
    assert choose_wanted(folder, folder.files) == small == ["config.json", shard, index]
    assert hub.asked_for(index) == []


def test_not_a_weight_is_asked_for(hub: HubServer, tmp_path: Path) -> None:
    release = next(release for release in RELEASES if release.count == 1564)
    local = write_release(tmp_path / "pack", release.config, release.keys)
    publish(hub, local)
    read_pack(afar(hub), NAME)
    for path in local.glob("*.safetensors"):
        for asked in hub.asked_for(path.name):
            assert asked.range is not None
            end = int(asked.range.rpartition("-")[2]) + 1
            assert end <= max(FIRST, header_end(path))
    assert hub.bytes_sent < 1_000_000


def test_a_large_index_is_left_alone_and_says_nothing_new(hub: HubServer, tmp_path: Path) -> None:
    release = next(release for release in RELEASES if release.count == 1564)
    local = write_release(tmp_path / "pack", release.config, release.keys)
    with (local / "model.safetensors.index.json").open("a") as index:
        index.write(" " * 7_000_000)
    here = read_pack(local, NAME)
    (local / "model.safetensors").write_bytes(b"a stray that the index does not name")
    publish(hub, local)
    folder = afar(hub)
    there = read_pack(folder, NAME)
    assert without_places(detect_head(there)) == without_places(detect_head(here))
    assert there.body_tensors.keys() == here.body_tensors.keys()
    assert folder.bytes_read < 1_000_000


def test_an_index_that_comes_compressed_counts_as_it_came(hub: HubServer, tmp_path: Path) -> None:
    release = next(release for release in RELEASES if release.count == 1564)
    local = write_release(tmp_path / "pack", release.config, release.keys)
    with (local / "model.safetensors.index.json").open("a") as index:
        index.write(" " * 5_000_000)
    publish(hub, local)
    hub.compresses = True
    folder = afar(hub, budget=5_500_000)
    assert detect_head(read_pack(folder, NAME)).tensors == 1564
    assert folder.bytes_read < 1_000_000


def test_a_head_in_a_file_of_its_own_is_read_with_its_metadata(hub: HubServer, tmp_path: Path) -> None:
    files = published_files(tmp_path / "published")
    hub.add(NAME, files)
    there, here = read_pack(afar(hub), NAME), read_pack(tmp_path / "published", NAME)
    assert dict(there.metadata) == dict(here.metadata) != {}
    assert without_places(detect_head(there)) == without_places(detect_head(here))
    assert there.sidecar == there.path / "mtp.safetensors"


def test_a_head_in_a_folder_below_and_a_revision(hub: HubServer, tmp_path: Path) -> None:
    files = published_files(tmp_path / "published")
    files["mtp/weights.safetensors"] = files.pop("mtp.safetensors")
    hub.add(NAME, files, revision="v2")
    folder = afar(hub, f"{NAME}@v2")
    assert detect_head(read_pack(folder)).present
    assert str(folder.path) == "hf:org/name@v2"
    with pytest.raises(NotFound, match="no such revision"):
        afar(hub)


def test_a_reading_that_costs_too_much_is_refused(hub: HubServer, tmp_path: Path) -> None:
    files = published_files(tmp_path / "published")
    hub.add(NAME, files)
    with pytest.raises(FailedPrecondition, match=r"too large to judge it from afar.*mtplx pull org/name"):
        read_pack(afar(hub, budget=10_000), NAME)
    assert hub.bytes_sent <= 10_000


def test_a_server_without_ranges_is_not_read_to_the_end(hub: HubServer, tmp_path: Path) -> None:
    files = published_files(tmp_path / "published")
    hub.add(NAME, files).faults["model.safetensors"] = Fault(ranges=False)
    folder = afar(hub)
    assert detect_head(read_pack(folder, NAME)).present
    assert folder.bytes_read < 200_000 < len(files["model.safetensors"])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "shorter than its length field"),
        (b"\x80\x02pickle", "shorter|does not fit"),
        (struct.pack("<Q", 1 << 60) + b"{}", "header does not fit"),
        (struct.pack("<Q", 4) + b"[1] ", "not a table"),
        (struct.pack("<Q", 20) + b'{"a": {"dtype": "F3"', "not JSON"),
    ],
    ids=["empty", "pickle", "absurd", "list", "cut"],
)
def test_a_damaged_file_is_named(hub: HubServer, tmp_path: Path, content: bytes, why: str) -> None:
    hub.add(NAME, {**published_files(tmp_path / "published"), "model.safetensors": content})
    with pytest.raises(DataLoss, match=why) as raised:
        read_pack(afar(hub), NAME)
    assert "hf:org/name/model.safetensors" in str(raised.value)


def test_an_index_that_names_a_file_that_is_not_there(hub: HubServer, tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    files = published_files(tmp_path / "published")
    hub.add(NAME, {**files, "model.safetensors.index.json": json.dumps(index).encode()})
    with pytest.raises(DataLoss, match="model-00001-of-00002"):
        read_pack(afar(hub), NAME)


def test_what_cannot_be_looked_up_is_said_before_anything_is_read(hub: HubServer) -> None:
    with pytest.raises(InvalidArgument):
        afar(hub, "not a name")
    with pytest.raises(Unavailable, match="HF_HUB_OFFLINE"):
        open_folder(NAME, settings(hub, offline=True))
    assert hub.asked == []
    with pytest.raises(NotFound):
        afar(hub, "org/none")
