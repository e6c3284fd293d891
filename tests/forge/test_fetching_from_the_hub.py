"""A build's files come from one commit of a repository, whatever becomes of the network, the process and the Hub."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mtplxd.errors import (
    Cancelled,
    DataLoss,
    FailedPrecondition,
    MtplxError,
    NotFound,
    ResourceExhausted,
    Unavailable,
    UnsupportedSource,
)
from mtplxd.forge.fetching import PIN, Source, fetch_source
from mtplxd.packs.hub.fetch import ARRIVALS
from mtplxd.packs.pack import read_pack
from mtplxd.paths import Home, HuggingFace
from support.arriving import bytes_arrived
from support.hub_server import PIECE, Fault, HubServer, Repository
from support.published import NAME, UNWANTED, published_files, put_in_cache
from support.tls_hub import CERTIFICATE, tls_hub

FILE = "model.safetensors"
TOKEN = "hf_" + "B" * 34
CARD = b"---\nlicense: apache-2.0\n---\n# tiny\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return {**published_files(tmp_path / "published"), "README.md": CARD}


@pytest.fixture
def newer(tmp_path: Path) -> dict[str, bytes]:
    """What the publisher puts in their place."""
    return {**published_files(tmp_path / "newer", seed=1), "README.md": CARD}


@pytest.fixture
def hub(files: dict[str, bytes], hub_environment: None) -> Iterator[HubServer]:  # noqa: ARG001
    with HubServer() as hub:
        hub.add(NAME, files | UNWANTED)
        yield hub


@pytest.fixture
def fetch(home: Home, hugging_face: HuggingFace, tmp_path: Path) -> Callable[..., Source]:
    def run(
        ref: str = NAME,
        cancelled: Callable[[], bool] = lambda: False,
        tell: Callable[[str, int, int, str], None] = lambda *_: None,
        hugging_face: HuggingFace = hugging_face,
    ) -> Source:
        return fetch_source(ref, tmp_path / "run", home, hugging_face, tell, cancelled)

    return run


def repository(hub: HubServer) -> Repository:
    return hub.repositories[NAME]


def commit_of(hub: HubServer) -> str:
    return repository(hub).revisions["main"].sha


def check(source: Source, files: dict[str, bytes]) -> None:
    """That it is these files and no others, and says so."""
    assert source.files == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert {name: (source.path / name).read_bytes() for name in files} == files
    assert source.bytes == sum(map(len, files.values()))


def test_what_a_build_needs_arrives_and_nothing_else(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes], tmp_path: Path
) -> None:
    told: list[tuple[str, int, int, str]] = []
    source = fetch(tell=lambda *step: told.append(step))
    check(source, files)
    assert (source.repo, source.revision, source.licence) == (NAME, commit_of(hub), "apache-2.0")
    assert read_pack(source.path).sidecar
    assert not [asked for asked in hub.asked for name in UNWANTED if asked.path.endswith(name)]
    assert not (tmp_path / "run" / ARRIVALS).exists()
    assert told[0] == ("fetch", 0, 1, NAME)
    assert ("fetch", source.bytes, source.bytes, NAME) in told
    assert json.loads(json.dumps(source.document()))["revision"] == commit_of(hub)


def test_done_again_it_asks_nobody(
    hub: HubServer, fetch: Callable[..., Source], newer: dict[str, bytes]
) -> None:
    first = fetch()
    hub.add(NAME, newer)
    hub.asked.clear()
    assert fetch() == first
    assert hub.asked == []


@pytest.mark.parametrize("name", [FILE, "config.json"])
def test_a_file_that_was_changed_here_is_fetched_again_of_the_same_commit(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes], newer: dict[str, bytes], name: str
) -> None:
    first = fetch()
    changed = bytearray(files[name])
    changed[-1] ^= 1
    (first.path / name).write_bytes(changed)
    hub.add(NAME, newer)
    assert fetch() == first
    check(first, files)


def test_a_branch_that_moves_on_meanwhile_changes_nothing(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes], newer: dict[str, bytes]
) -> None:
    fault = repository(hub).faults[FILE] = Fault(hold=threading.Event(), times=1)
    assert fault.hold
    moved: list[str] = []

    def push() -> bool:
        if hub.held.is_set() and not moved:
            hub.add(NAME, newer)
            moved.append(commit_of(hub))
            fault.hold.set()
        return False

    source = fetch(cancelled=push)
    assert moved
    assert source.revision not in (None, *moved)
    check(source, files)


def stop_in_the_middle(hub: HubServer, fetch: Callable[..., Source], run: Path) -> None:
    """A fetch that is cancelled once a piece of the weights is on the disk."""
    repository(hub).faults[FILE] = Fault(hold=threading.Event(), times=1)

    def arrived() -> bool:
        return bytes_arrived(hub, NAME, FILE, run / ARRIVALS) >= PIECE

    with pytest.raises(Cancelled):
        fetch(cancelled=arrived)
    hub.asked.clear()


def test_resumed_it_goes_on_where_it_stopped_with_the_commit_it_began_with(
    hub: HubServer,
    fetch: Callable[..., Source],
    files: dict[str, bytes],
    newer: dict[str, bytes],
    tmp_path: Path,
) -> None:
    began = commit_of(hub)
    stop_in_the_middle(hub, fetch, tmp_path / "run")
    hub.add(NAME, newer)
    source = fetch()
    assert source.revision == began
    check(source, files)
    assert [asked.range for asked in hub.asked_for(FILE)] == [f"bytes={PIECE}-{len(files[FILE]) - 1}"]


def test_another_source_in_the_same_folder_is_not_held_to_the_first_ones_commit(
    hub: HubServer, fetch: Callable[..., Source], newer: dict[str, bytes]
) -> None:
    fetch()
    hub.add("org/other", newer)
    source = fetch("org/other")
    assert source.revision == hub.repositories["org/other"].revisions["main"].sha
    check(source, newer)


def test_a_commit_that_is_gone_when_the_build_goes_on_is_told_as_that(
    hub: HubServer, fetch: Callable[..., Source], newer: dict[str, bytes], tmp_path: Path
) -> None:
    began = commit_of(hub)
    stop_in_the_middle(hub, fetch, tmp_path / "run")
    hub.add(NAME, newer)
    repository(hub).forget_past()
    with pytest.raises(NotFound, match=rf"began with is gone .*{began[:12]}.*: begin a new build"):
        fetch()
    del hub.repositories[NAME]
    with pytest.raises(NotFound, match="began with is gone"):
        fetch()


def test_a_shard_that_changes_upstream_ends_the_fetch_and_is_never_mixed_in(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes], tmp_path: Path
) -> None:
    stop_in_the_middle(hub, fetch, tmp_path / "run")
    repository(hub).faults[FILE] = Fault(etag="e" * 64, sends=b"\0" * len(files[FILE]))
    with pytest.raises(DataLoss, match=r"changed since it was listed \(model.safetensors of org/name@"):
        fetch()
    repository(hub).faults.clear()
    check(fetch(), files)


def test_a_broken_and_slow_connection_is_taken_up_again(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes]
) -> None:
    repository(hub).faults[FILE] = Fault(cut=150_000, pause_s=0.005, times=2)
    check(fetch(), files)
    assert len(hub.asked_for(FILE)) == 3


def test_wrong_bytes_are_no_source(hub: HubServer, fetch: Callable[..., Source]) -> None:
    repository(hub).faults[FILE] = Fault(sends=b"wrong")
    with pytest.raises((DataLoss, Unavailable)):
        fetch()


def test_a_silent_server_does_not_keep_a_cancel_waiting(
    fetch: Callable[..., Source], hugging_face: HuggingFace
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        lost = HuggingFace(hugging_face.cache, None, url, offline=False)
        with pytest.raises(Cancelled):
            fetch(hugging_face=lost, cancelled=lambda: True)


def test_kill_9_leaves_what_has_arrived_for_the_next_try(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes], home: Home, tmp_path: Path
) -> None:
    repository(hub).faults[FILE] = Fault(hold=threading.Event(), times=1)
    line = (
        "import sys; from pathlib import Path; from mtplxd.forge.fetching import fetch_source\n"
        "from mtplxd.paths import Home, HuggingFace\n"
        f"hub = HuggingFace(Path({str(tmp_path / 'cache')!r}), None, {hub.url!r}, False)\n"
        f"fetch_source({NAME!r}, Path({str(tmp_path / 'run')!r}), Home(Path({str(home.root)!r})), hub, "
        "lambda *_: None, lambda: False)"
    )
    process = subprocess.Popen([sys.executable, "-c", line])
    assert hub.held.wait(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    began = json.loads((tmp_path / "run" / PIN).read_text())["commit"]
    source = fetch()  # waits for the lock, which the orphan lets go when it ends
    assert source.revision == began == commit_of(hub)
    check(source, files)


def test_what_the_cache_holds_is_used_where_it_lies(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes], hugging_face: HuggingFace
) -> None:
    put_in_cache(hugging_face.cache, files, commit_of(hub))
    source = fetch()
    assert (source.path / FILE).is_symlink()
    assert hub.asked_for(FILE) == []
    check(source, files)
    shutil.rmtree(hugging_face.cache)
    check(fetch(), files)
    assert len(hub.asked_for(FILE)) == 1


def test_without_a_network_the_cache_is_enough_or_the_way_is_told(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes], hugging_face: HuggingFace
) -> None:
    offline = HuggingFace(hugging_face.cache, None, hub.url, offline=True)
    with pytest.raises(Unavailable, match="HF_HUB_OFFLINE"):
        fetch(hugging_face=offline)
    put_in_cache(hugging_face.cache, files, commit_of(hub))
    check(fetch(hugging_face=offline), files)
    assert hub.asked == []


def refused(fetch: Callable[..., Source], kind: type[MtplxError], ref: str) -> str:
    with pytest.raises(kind) as raised:
        fetch(ref)
    assert raised.value.fix
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_cannot_be_had_is_one_clear_line(hub: HubServer, fetch: Callable[..., Source]) -> None:
    assert "org/none" in refused(fetch, NotFound, "org/none")
    assert "no such revision (org/name@v9)" in refused(fetch, NotFound, f"{NAME}@v9")
    hub.add("org/gated", {}).gated = "hf_token"
    hub.repositories["org/gated"].revisions["main"] = repository(hub).revisions["main"]
    assert "https://huggingface.co/org/gated" in refused(fetch, FailedPrecondition, "org/gated")
    repository(hub).refuses = 503
    assert "try again" in refused(fetch, Unavailable, NAME)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "pytorch_model.bin is no safetensors file"),
        ({"model.gguf": b"GGUF"}, "no model in this repository"),
    ],
)
def test_a_repository_of_which_no_pack_can_be_made(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes], why: str
) -> None:
    hub.add("org/strange", files)
    with pytest.raises(UnsupportedSource, match=why):
        fetch("org/strange")


def test_a_disk_that_is_too_small_is_told_before_the_first_byte(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes], tmp_path: Path
) -> None:
    huge = tmp_path / "huge.safetensors"
    with huge.open("wb") as file:
        file.truncate(2 * shutil.disk_usage(tmp_path).free)
    hub.add(NAME, {**files, FILE: huge})
    with pytest.raises(ResourceExhausted, match="not enough disk space") as raised:
        fetch()
    assert raised.value.needed >= huge.stat().st_size
    assert raised.value.available < raised.value.needed
    assert str(tmp_path / "run") in str(raised.value)
    assert hub.asked_for(FILE) == []


def test_a_disk_that_fills_up_is_told_and_the_fetch_goes_on_once_there_is_room(
    hub: HubServer, fetch: Callable[..., Source], files: dict[str, bytes], tmp_path: Path
) -> None:
    arrivals = tmp_path / "run" / ARRIVALS
    arrivals.mkdir(parents=True)
    part = arrivals / f"{repository(hub).revisions['main'].files[FILE].sha256}.part"
    part.symlink_to("/dev/full")
    with pytest.raises(ResourceExhausted, match=r"the disk is full .*free some space"):
        fetch()
    part.unlink()
    check(fetch(), files)


def test_a_token_goes_to_the_hub_itself_and_is_in_no_argument(
    hub: HubServer,
    fetch: Callable[..., Source],
    files: dict[str, bytes],
    hugging_face: HuggingFace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository(hub).gated = TOKEN
    repository(hub).faults[FILE] = Fault(hold=threading.Event(), times=1)
    seen: list[bytes] = []

    def look() -> bool:
        if hub.held.is_set() and not seen:
            children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
            pids = [pid for path in children for pid in path.read_text().split()]
            seen.extend(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
            hold = repository(hub).faults[FILE].hold
            assert hold
            hold.set()
        return False

    if not Path("/proc/self/cmdline").exists():
        pytest.skip("this system shows no arguments under /proc")
    with tls_hub(hub.url) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        ours = HuggingFace(hugging_face.cache, TOKEN, None, offline=False)
        check(fetch(hugging_face=ours, cancelled=look), files)
    assert any(b"hub.fetch" in line for line in seen)
    assert not [line for line in seen if TOKEN.encode() in line]
    assert {asked.token for asked in hub.asked if not asked.storage} == {f"Bearer {TOKEN}"}
    assert {asked.token for asked in hub.asked if asked.storage} == {None}


def test_a_mirror_gets_no_token(
    hub: HubServer, fetch: Callable[..., Source], hugging_face: HuggingFace
) -> None:
    fetch(hugging_face=HuggingFace(hugging_face.cache, TOKEN, hub.url, offline=False))
    assert not [value for asked in hub.asked for value in asked.headers.values() if TOKEN in value]
