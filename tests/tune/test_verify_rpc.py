"""Verifying through a real daemon and its client: the record, the tier that follows, refusals, waiting and leaving."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import AsyncClient, Client
from mtplx_client.events import Progress
from mtplx_client.verifications import Verification
from mtplxd.errors import Cancelled, DataLoss, FailedPrecondition, InvalidArgument, MtplxError, NotFound
from mtplxd.packs.findings import LEAST_POWER
from mtplxd.packs.manifest import FILE_NAME
from mtplxd.packs.pack import read_pack
from mtplxd.packs.verified import fingerprint_of, save_verification
from support.daemon_process import DaemonProcess, running_daemon, short_folder
from support.spoiling import OVERFLOWING, fill_tensor
from support.tiny_pack import make_tiny_pack
from support.verifications import passing_findings

SMALL: dict[str, Any] = {"prompts": 1, "max_tokens": 8, "samples": 1000}
QUICK = SMALL | {"depths": (1,), "samples": 160}
"""Leaves too much open to be recorded, and fails as well as any."""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def daemon(home: Path) -> Iterator[DaemonProcess]:
    make_tiny_pack(home / "packs" / "headless", head=False)
    with running_daemon(home) as process:
        yield process


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(socket=daemon.socket) as client:
        yield client


@pytest.fixture
def pack(home: Path, request: pytest.FixtureRequest) -> str:
    """A pack of the test's own, fresh on disk."""
    name = f"p{abs(hash(request.node.name)) % 10**6}"
    make_tiny_pack(home / "packs" / name)
    return name


def record_of(home: Path, pack: str) -> dict[str, Any]:
    file = home / "packs" / pack / FILE_NAME
    return json.loads(file.read_text())["mtplxd"]["verification"] if file.exists() else {}


def test_a_pack_that_passes_is_recorded_and_verified_everywhere(
    client: Client, home: Path, pack: str
) -> None:
    said: list[Progress] = []
    found = client.verify(pack, on_progress=said.append, **SMALL)
    assert found.failures == ()
    assert found.passed
    assert found.recorded
    assert found.depths == tuple(range(9))
    assert (found.greedy.tokens, found.coupled.tokens) == (8 * 8, 2 * 8 * 8)
    assert found.law.tokens == 1000
    assert 0 <= found.law.p_value <= 1
    assert LEAST_POWER <= found.law.power <= 1
    assert found.machine.mlx
    steps = [step for step in said if step.stage == "verify"]
    assert steps[-1].done == steps[-1].total
    record = record_of(home, pack)
    assert record["passed"] is True
    assert record["fingerprint"] == {"body": found.fingerprint_body, "head": found.fingerprint_head}
    assert record["greedy"] == {"tokens": 64, "divergences": 0, "near_ties": 0}
    assert record["law"]["p_value"] == found.law.p_value
    shown = client.show(pack).pack
    assert shown.tier == "verified"
    assert shown.fingerprint_head == found.fingerprint_head
    assert {p.name: p.tier for p in client.ls()}[pack] == "verified"
    assert {m.name: m.tier for m in client.ps()}[pack] == "verified"  # loaded before it was


def test_editing_a_weight_ends_it(client: Client, home: Path, pack: str) -> None:
    found = read_pack(home / "packs" / pack)
    files = {"fingerprint": fingerprint_of(found), "depths": list(range(9))}
    save_verification(found, {**passing_findings(), **files})
    assert client.show(pack).pack.tier == "verified"
    file = home / "packs" / pack / "mtp.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    shown = client.show(pack).pack
    assert (shown.tier, shown.reasons) == ("unverified", ("its head is not the one that was verified",))
    assert client.load(pack, force=True).tier == "unverified"
    assert client.verify(pack, **SMALL).recorded  # a pack is always verified, whatever it was
    assert client.show(pack).pack.tier == "verified"


def test_files_that_are_not_the_ones_in_memory_are_refused(client: Client, home: Path, pack: str) -> None:
    client.load(pack, force=True)
    make_tiny_pack(home / "packs" / pack, seed=1)
    with pytest.raises(FailedPrecondition, match="changed after it was loaded"):
        client.verify(pack, **SMALL)
    assert record_of(home, pack) == {}


def test_one_whose_test_of_laws_is_too_weak_writes_nothing_and_says_so(
    client: Client, home: Path, pack: str
) -> None:
    found = client.verify(pack, **(SMALL | {"samples": 160}))
    assert (found.passed, found.recorded, found.unrecorded) == (True, False, "")
    assert f"power {found.law.power:.2f}, at least {LEAST_POWER:g} is needed" in found.incomplete
    assert "--samples" in found.incomplete
    assert record_of(home, pack) == {}


def test_a_dry_run_and_one_that_leaves_depths_out_write_nothing(
    client: Client, home: Path, pack: str
) -> None:
    for wish in ({"dry_run": True}, {"depths": (1,)}):
        found = client.verify(pack, **SMALL, **wish)  # type: ignore[arg-type]
        assert (found.passed, found.recorded, found.unrecorded) == (True, False, "")
    assert found.depths == (0, 1)  # plain decoding is what others are compared with
    assert record_of(home, pack) == {}


def test_a_pack_that_cannot_be_written_gives_its_findings_all_the_same(
    client: Client, daemon: DaemonProcess, home: Path, pack: str
) -> None:
    (home / "packs" / pack / f".{FILE_NAME}.{daemon.pid}.tmp").mkdir()
    found = client.verify(pack, **SMALL)
    assert (found.passed, found.recorded) == (True, False)
    assert found.unrecorded.startswith("cannot write into the pack")
    assert found.greedy.tokens == 64
    assert client.show(pack).pack.tier == "unverified"


def test_one_that_fails_goes_before_an_earlier_record_of_these_files(
    client: Client, home: Path, pack: str
) -> None:
    folder = home / "packs" / pack
    fill_tensor(folder / "mtp.safetensors", "mtp.norm.weight", OVERFLOWING)
    assert not client.verify(pack, **QUICK).passed
    assert record_of(home, pack) == {}  # nobody believed it, there is nothing to take back
    found = read_pack(folder)
    files = {"fingerprint": fingerprint_of(found), "depths": list(range(9))}
    save_verification(found, {**passing_findings(), **files})
    assert client.show(pack).pack.tier == "verified"
    failed = client.verify(pack, **QUICK)
    assert (failed.passed, failed.recorded, failed.unrecorded) == (False, False, "")
    shown = client.show(pack).pack
    assert (shown.tier, shown.reasons) == ("unverified", ("its verification did not pass",))
    assert {m.name: m.tier for m in client.ps()}[pack] == "unverified"


def test_a_contract_file_that_is_damaged_is_told_before_the_work(
    client: Client, home: Path, pack: str
) -> None:
    client.load(pack, force=True)
    (home / "packs" / pack / FILE_NAME).write_text('{"mtplxd": {"form')
    said: list[Progress] = []
    with pytest.raises(DataLoss, match="damaged contract file"):
        client.verify(pack, on_progress=said.append, **QUICK)
    assert not [step for step in said if step.stage == "verify"]
    assert client.verify(pack, dry_run=True, **QUICK).passed


def test_the_asynchronous_client_verifies_too(daemon: DaemonProcess, pack: str) -> None:
    import asyncio

    async def ask() -> Verification:
        async with AsyncClient(socket=daemon.socket) as client:
            return await client.verify(pack, depths=(1,), **(SMALL | {"samples": 160}))

    assert asyncio.run(ask()).passed


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"samples": 159}, InvalidArgument, "samples are out of range"),
        ({"prompts": 1000}, InvalidArgument, "too many prompts"),
        ({"depths": (0,)}, InvalidArgument, "nothing to compare"),
        ({"depths": (99,)}, InvalidArgument, "depth is above the head's limit"),
        ({"max_tokens": 100_000}, InvalidArgument, "answers are longer than the context"),
        ({"model": "tinny"}, NotFound, "tinny"),
        ({"model": "headless"}, FailedPrecondition, "without an MTP head"),
    ],
)
def test_what_cannot_be_verified_is_refused(
    client: Client, pack: str, wrong: dict[str, Any], kind: type[MtplxError], says: str
) -> None:
    with pytest.raises(kind, match=says):
        client.verify(**{"model": pack, **SMALL, **wrong})


def test_a_client_that_leaves_gives_engine_and_model_back(
    client: Client, daemon: DaemonProcess, pack: str
) -> None:
    class Left(Exception):
        pass

    def leave(step: Progress) -> None:
        if step.stage == "verify" and step.done:
            raise Left

    with pytest.raises(Left), Client(socket=daemon.socket) as other:
        other.verify(pack, prompts=4, max_tokens=300, samples=100_000, on_progress=leave)
    assert client.complete("hi", model=pack, max_tokens=2, force=True).usage.completion_tokens > 0
    client.unload(pack)


def test_others_wait_with_the_reason(client: Client, daemon: DaemonProcess, pack: str) -> None:
    begun, seen = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def on_progress(step: Progress) -> None:
        if step.stage == "verify" and step.done:
            begun.set()
        if seen.is_set():
            raise Cancelled("enough")

    def verify() -> None:
        with Client(socket=daemon.socket) as other:
            try:
                other.verify(pack, prompts=4, max_tokens=200, samples=100_000, on_progress=on_progress)
            except BaseException as error:
                failures.append(error)
                begun.set()

    def answer() -> None:
        with Client(socket=daemon.socket) as third:
            third.complete("hi", model=pack, max_tokens=2, force=True)

    verifying, waiting = threading.Thread(target=verify), threading.Thread(target=answer)
    verifying.start()
    assert begun.wait(120)
    assert not failures
    with pytest.raises(FailedPrecondition, match="model is busy"):
        client.unload(pack)
    waiting.start()
    reasons: set[str] = set()
    for status in client.watch(interval_s=0.1):
        reasons |= {request.waits_for for request in status.in_flight}
        if "verifying" in reasons:
            break
    seen.set()
    verifying.join(120)
    waiting.join(120)
    assert isinstance(failures[0], Cancelled)
