"""A pull that is cut short, by the network, its user or kill -9, leaves no pack; the next goes on where it stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.errors import Cancelled, Unavailable
from mtplxd.packs.hub import transfer as transfers
from mtplxd.packs.hub.errors import AnotherFile, NoRange
from mtplxd.packs.hub.names import RepositoryName
from mtplxd.packs.hub.repository import RemoteFile, Repository, open_repository
from mtplxd.packs.hub.transfer import transfer
from mtplxd.packs.pull import pull
from mtplxd.packs.resolver import list_packs, resolve
from mtplxd.paths import Home, HuggingFace
from support.arriving import bytes_arrived
from support.hub_server import PIECE, Fault, HubServer, sha256
from support.published import NAME, published_files

FILE = "model.safetensors"
PULL = "import sys; from pathlib import Path; from mtplxd.packs.pull import pull; from mtplxd.paths import Home; "


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return published_files(tmp_path / "published")


@pytest.fixture
def hub(files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer() as hub:
        hub.add(NAME, files)
        for name, value in {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(transfers, "WAIT_S", 0.0)
        yield hub


@pytest.fixture
def repository(hub: HubServer, tmp_path: Path) -> Repository:
    return open_repository(RepositoryName(NAME), HuggingFace(tmp_path / "cache", None, hub.url, False))


@pytest.fixture
def wanted(repository: Repository) -> RemoteFile:
    return repository.files[FILE]


def ranges(hub: HubServer) -> list[str | None]:
    return [asked.range for asked in hub.asked_for(FILE)]


def fetch(
    repository: Repository, wanted: RemoteFile, folder: Path, timeout_s: float = 20.0
) -> tuple[bytes, int]:
    """The bytes that came, and what was counted of them."""
    counted: list[int] = []
    return transfer(repository, wanted, folder, counted.append, timeout_s).read_bytes(), sum(counted)


def test_a_cut_connection_is_taken_up_where_it_broke(
    hub: HubServer, repository: Repository, wanted: RemoteFile, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.repositories[NAME].faults[FILE] = Fault(cut=100_000, times=3)
    assert fetch(repository, wanted, tmp_path) == (files[FILE], len(files[FILE]))
    last = len(files[FILE]) - 1
    assert ranges(hub) == [f"bytes={begin}-{last}" for begin in (0, 100_000, 200_000, 300_000)]


def test_what_an_earlier_try_left_is_not_fetched_again(
    hub: HubServer, repository: Repository, wanted: RemoteFile, files: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / f"{wanted.etag}.part").write_bytes(files[FILE][:123_456])
    assert fetch(repository, wanted, tmp_path) == (files[FILE], len(files[FILE]))
    assert ranges(hub) == [f"bytes=123456-{len(files[FILE]) - 1}"]
    assert fetch(repository, wanted, tmp_path) == (files[FILE], len(files[FILE]))
    assert len(ranges(hub)) == 1


@pytest.mark.parametrize("left", [b"other bytes than the file begins with", b"x" * 10_000_000])
def test_what_is_left_of_something_else_is_thrown_away(
    repository: Repository, wanted: RemoteFile, files: dict[str, bytes], tmp_path: Path, left: bytes
) -> None:
    (tmp_path / f"{wanted.etag}.part").write_bytes(left)
    assert fetch(repository, wanted, tmp_path) == (files[FILE], len(files[FILE]))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(wanted.etag)] == [wanted.etag]


def test_a_server_without_ranges_sends_the_file_from_its_start(
    hub: HubServer, repository: Repository, wanted: RemoteFile, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.repositories[NAME].faults[FILE] = Fault(ranges=False)
    with pytest.raises(NoRange), repository.stream(FILE, 1000, 2000, 20.0):
        pass
    (tmp_path / f"{wanted.etag}.part").write_bytes(files[FILE][:1000])
    assert fetch(repository, wanted, tmp_path) == (files[FILE], len(files[FILE]))


def test_a_large_file_is_asked_for_in_pieces(
    hub: HubServer, repository: Repository, wanted: RemoteFile, files: dict[str, bytes], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(transfers, "PIECE", 200_000)
    assert fetch(repository, wanted, tmp_path) == (files[FILE], len(files[FILE]))
    assert ranges(hub) == ["bytes=0-199999", f"bytes=200000-{len(files[FILE]) - 1}"]


def test_a_connection_that_brings_nothing_ends_in_one_clear_error(
    hub: HubServer, repository: Repository, wanted: RemoteFile, tmp_path: Path
) -> None:
    hub.repositories[NAME].faults[FILE] = Fault(cut=0)
    with pytest.raises(Unavailable) as raised:
        fetch(repository, wanted, tmp_path)
    assert "\n" not in str(raised.value)
    assert len(ranges(hub)) == transfers.TRIES + 1


def test_a_server_that_falls_silent_is_left_and_asked_again(
    hub: HubServer, repository: Repository, wanted: RemoteFile, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.repositories[NAME].faults[FILE] = Fault(hold=threading.Event(), times=1)
    assert fetch(repository, wanted, tmp_path, timeout_s=0.2) == (files[FILE], len(files[FILE]))
    assert len(ranges(hub)) == 2


@pytest.mark.parametrize("at", [0, 100_000])
def test_a_file_that_changed_upstream_is_seen_before_a_byte_of_it_is_taken(
    hub: HubServer,
    repository: Repository,
    wanted: RemoteFile,
    files: dict[str, bytes],
    tmp_path: Path,
    at: int,
) -> None:
    """A range of other content, put behind what has arrived, would make a file that never was."""
    (tmp_path / f"{wanted.etag}.part").write_bytes(files[FILE][:at])
    hub.repositories[NAME].faults[FILE] = Fault(etag=sha256(b"another"))
    with pytest.raises(AnotherFile, match=r"changed since it was listed \(model.safetensors of org/name\)"):
        fetch(repository, wanted, tmp_path)
    assert (tmp_path / f"{wanted.etag}.part").read_bytes() == files[FILE][:at]
    assert len(ranges(hub)) == 1


def test_a_small_file_that_changed_upstream_is_seen_too(hub: HubServer, repository: Repository) -> None:
    hub.repositories[NAME].faults["config.json"] = Fault(etag="0" * 40)
    with pytest.raises(AnotherFile, match=r"changed.*config.json"):
        repository.read("config.json", 100_000)


@pytest.mark.parametrize("etag", ["another-spelling", "f" * 40])
def test_an_etag_that_is_no_hash_of_this_kind_says_nothing(
    hub: HubServer,
    repository: Repository,
    wanted: RemoteFile,
    files: dict[str, bytes],
    tmp_path: Path,
    etag: str,
) -> None:
    hub.repositories[NAME].faults[FILE] = Fault(etag=etag)
    assert fetch(repository, wanted, tmp_path) == (files[FILE], len(files[FILE]))


def test_a_slow_server_is_waited_for_while_something_arrives(
    hub: HubServer, repository: Repository, wanted: RemoteFile, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.repositories[NAME].faults[FILE] = Fault(pause_s=0.02)
    assert fetch(repository, wanted, tmp_path, timeout_s=0.4) == (files[FILE], len(files[FILE]))
    assert len(ranges(hub)) == 1


def test_a_cancelled_pull_leaves_no_pack_and_what_has_arrived(hub: HubServer, home: Home) -> None:
    hub.repositories[NAME].faults[FILE] = Fault(hold=threading.Event(), times=1)
    arrivals = home.packs / ".partial-org--name" / "arrivals"
    with pytest.raises(Cancelled):
        pull(NAME, home, cancelled=lambda: bytes_arrived(hub, NAME, FILE, arrivals) >= PIECE)
    assert list_packs(home) == []
    hub.asked.clear()
    assert pull(NAME, home) == resolve(NAME, home)
    assert [asked.range for asked in hub.asked_for(FILE)] == [f"bytes={PIECE}-{size_of(hub) - 1}"]


def test_kill_9_leaves_no_pack_and_no_process_and_what_has_arrived(hub: HubServer, home: Home) -> None:
    hub.repositories[NAME].faults[FILE] = Fault(hold=threading.Event(), times=1)
    line = PULL + f"pull({NAME!r}, Home(Path({str(home.root)!r})))"
    process = subprocess.Popen([sys.executable, "-c", line])
    assert hub.held.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list_packs(home) == []
    hub.asked.clear()
    pack = pull(NAME, home)  # waits for the lock, which the orphan lets go when it ends
    assert (pack.path / FILE).stat().st_size == size_of(hub)
    assert [entry.name for entry in home.packs.iterdir()] == ["org--name"]


def size_of(hub: HubServer) -> int:
    return hub.repositories[NAME].revisions["main"].files[FILE].size


@pytest.mark.parametrize("moment", range(6))
def test_kill_9_of_the_worker_at_any_moment_leaves_a_pack_or_none(
    hub: HubServer, home: Home, files: dict[str, bytes], moment: int
) -> None:
    """The worker and its parent die together after so many of its lines; whatever is listed then is whole."""
    line = PULL + (
        "import os, signal; seen = []\n"
        "def step(*step):\n"
        "    seen.append(step)\n"
        f"    if len(seen) > {moment}: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"pull({NAME!r}, Home(Path({str(home.root)!r})), step)"
    )
    code = subprocess.run([sys.executable, "-c", line]).returncode
    assert code in (0, -signal.SIGKILL)
    for pack in list_packs(home):
        assert {name: sha256((pack.path / name).read_bytes()) for name in files} == {
            name: sha256(content) for name, content in files.items()
        }
    assert (pull(NAME, home).path / FILE).read_bytes() == files[FILE]
    assert hub.asked


@pytest.mark.usefixtures("hub")
def test_a_file_that_cannot_be_written_is_no_fault_of_the_hub(home: Home, files: dict[str, bytes]) -> None:
    line = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        f"{PULL}from mtplxd.errors import MtplxError\n"
        f"try: pull({NAME!r}, Home(Path({str(home.root)!r})))\n"
        "except MtplxError as error: print(error.code, error)"
    )
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("FAILED_PRECONDITION cannot write the pack")
    assert list_packs(home) == []
    assert (pull(NAME, home).path / FILE).read_bytes() == files[FILE]


def test_arrivals_of_a_commit_that_was_replaced_are_not_mixed_in(
    hub: HubServer, home: Home, files: dict[str, bytes], tmp_path: Path
) -> None:
    hub.repositories[NAME].faults[FILE] = Fault(hold=threading.Event(), times=1)
    with pytest.raises(Cancelled):
        pull(NAME, home, cancelled=hub.held.is_set)
    newer = published_files(tmp_path / "newer", seed=1)
    hub.add(NAME, newer)
    pack = pull(NAME, home)
    assert (pack.path / FILE).read_bytes() == newer[FILE]
    assert newer[FILE] != files[FILE]
    assert json.loads((pack.path / "mtplx_source.json").read_text())["commit"] == (
        hub.repositories[NAME].revisions["main"].sha
    )
    assert os.listdir(home.packs) == ["org--name"]
