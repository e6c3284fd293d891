"""The doctor's further checks say what is wrong and what to do; the bundle holds neither content nor keys."""

from __future__ import annotations

import http.server
import sqlite3
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from mtplx_client.doctor import access, hub, more, power, service, stock, versions
from mtplx_client.doctor.bundle import redact
from mtplx_client.doctor.probes import Probe
from mtplx_client.doctor.situation import Situation
from mtplx_launchd.service import NOT_INSTALLED, STOPPED, Standing
from mtplxd.config import resolve_settings
from mtplxd.paths import Home, resolve_hugging_face
from mtplxd.starts import Record, Start
from support.tiny_pack import make_tiny_pack

STANDING = Standing("l", Path("/l.plist"), "running", 7, None, "gui/501", "/py", False)
START = Start(pid=7, version="0.1.0", boot="b", began=100.0, ready=101.0)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def situation(home: Path) -> Situation:
    place = Home(home)
    place.create()
    return Situation(place, resolve_settings(place, {}, {}), Probe({"power": "normal"}))


@pytest.mark.parametrize(
    ("change", "exists", "ok", "said"),
    [
        ({}, True, True, "running, pid 7, gui/501"),
        ({"state": NOT_INSTALLED}, False, True, "mtplx service install"),
        ({"state": STOPPED}, True, True, "until the next login"),
        ({}, False, False, "/py, which is gone"),
        ({"edited": True}, True, False, "is not what was loaded"),
        ({"state": "waiting", "last_exit": "78: EX_CONFIG"}, True, False, "ended with 78"),
        ({"state": "waiting", "last_exit": "0"}, True, True, "waiting"),
    ],
)
def test_the_job(change: dict, exists: bool, ok: bool, said: str) -> None:
    check = service.judge_service(replace(STANDING, **change), "launchd", exists)
    assert check.ok is ok
    assert said in check.detail
    assert ok or check.fix


@pytest.mark.parametrize(
    ("record", "said", "at", "ok", "words"),
    [
        (Record(), "", 0.0, True, "none failed"),
        (Record(START), "did not come up", 100.5, True, "did not come up"),
        (Record(START), "did not come up", 200.0, False, "did not come up"),
        (Record(None), "no socket", 50.0, False, "no socket"),
        (Record(START, (350.0, 380.0, 390.0)), "died", 50.0, False, "3 crashes"),
        (Record(START, (10.0, 20.0, 30.0)), "", 0.0, True, "none failed"),
    ],
)
def test_how_starts_went(record: Record, said: str, at: float, ok: bool, words: str) -> None:
    check = service.judge_starts(record, said, at, "/f", 400.0)
    assert check.ok is ok
    assert words in check.detail
    assert check.fix or ok


def test_a_failed_start_is_shown_from_its_log(situation: Situation) -> None:
    (situation.home.logs / "last-failure.log").write_text("2026 mtplxd did not come up: no disk\nmore\n")
    [check] = service.check_starts(situation)
    assert not check.ok
    assert "no disk" in check.detail
    assert str(situation.home.logs) in check.detail


def test_open_folders_are_named_with_the_command_that_closes_them(situation: Situation) -> None:
    assert [check.ok for check in access.check_permissions(situation)] == [True]
    situation.home.logs.chmod(0o755)
    [check] = access.check_permissions(situation)
    assert not check.ok
    assert f"{situation.home.logs} is open" in check.detail
    assert f"chmod -R go-rwx {situation.home.logs}" in check.fix


@pytest.mark.parametrize(
    ("mode", "ok"), [("low", False), ("normal", True), ("high", True), ("unknown", True)]
)
def test_low_power_mode_is_wrong(mode: str, ok: bool) -> None:
    check = power.judge_power(mode)
    assert check.ok is ok
    assert ok or "Low Power Mode" in check.fix


def test_a_library_that_is_not_there_is_wrong() -> None:
    assert versions.judge_versions({"mlx": "0.32"}).ok
    check = versions.judge_versions({"mlx": None, "grpcio": "1"})
    assert (check.ok, check.detail) == (False, "not installed: mlx")


def test_packs_are_told_with_their_tiers_and_a_broken_one_is_wrong(situation: Situation) -> None:
    make_tiny_pack(situation.home.packs / "tiny")
    [check] = stock.check_packs(situation)
    assert (check.ok, check.detail) == (True, "tiny unverified")
    (situation.home.packs / "cut").mkdir()
    (situation.home.packs / "cut" / "config.json").write_text("{")
    [check] = stock.check_packs(situation)
    assert not check.ok
    assert check.detail.startswith("cut: ")
    assert "mtplx rm cut" in check.fix


def test_a_damaged_sessions_file_is_wrong(situation: Situation) -> None:
    path = situation.home.sessions_file
    assert next(stock.check_sessions(situation)).ok
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE sessions (id)")
    assert next(stock.check_sessions(situation)).ok
    path.write_bytes(b"no database at all" * 100)
    assert not next(stock.check_sessions(situation)).ok


@contextmanager
def answering(code: int) -> Iterator[tuple[str, list[str]]]:
    """A server that gives every request this code; its address, and the headers it was sent."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            seen.append(str(self.headers))
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


@pytest.mark.parametrize(("code", "ok"), [(200, True), (401, True), (404, True), (503, False)])
def test_the_hub_is_there_when_anything_answers_and_gets_no_key(code: int, ok: bool) -> None:
    with answering(code) as (address, seen):
        check = hub.look(resolve_hugging_face({"HF_ENDPOINT": address, "HF_TOKEN": "hf_secretsecret"}))
    assert check.ok is ok
    assert seen
    assert "secret" not in "".join(seen)


def test_a_hub_that_is_not_there_and_one_that_is_not_wanted() -> None:
    check = hub.look(resolve_hugging_face({"HF_ENDPOINT": "http://127.0.0.1:9"}))
    assert not check.ok
    assert "HF_HUB_OFFLINE" in check.fix
    assert hub.look(resolve_hugging_face({"HF_HUB_OFFLINE": "1"})).ok
    assert not hub.look(resolve_hugging_face({"HF_ENDPOINT": "no address"})).ok


def test_a_check_that_fails_itself_is_one_that_failed(
    situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_helper(_: Situation) -> Iterator[object]:
        raise RuntimeError("boom")

    monkeypatch.setattr(more, "GROUPS", [check_helper, power.check_power])
    broken, fine = more.run_groups(situation)
    assert (broken.name, broken.ok, fine.ok) == ("helper", False, True)
    assert "boom" in broken.detail


@pytest.mark.parametrize(
    "key",
    [
        "hf_abcdefGHIJ1234",
        "Authorization: Bearer abc.def-123",
        "http://me:pa55@proxy:80/",
        "api_key=zzz-secret",
        '"token": "t0psecret"',
        "password: hunter2",
    ],
)
def test_what_looks_like_a_key_is_left_out(key: str) -> None:
    said = redact(f"before {key} after")
    assert "(left out)" in said
    for secret in ("abcdefGHIJ", "abc.def", "pa55", "zzz", "t0psecret", "hunter2"):
        assert secret not in said
    assert said.startswith("before ")


@pytest.mark.parametrize("text", ["12 tokens, depth 2", "max_tokens is 3", "tok/s 80.1", "keyed by name"])
def test_what_is_no_key_stays(text: str) -> None:
    assert redact(text) == text


def test_the_bundle_holds_facts_and_logs_and_nothing_that_was_said(
    mtplx, situation: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = situation.home
    monkeypatch.setenv("HF_TOKEN", "hf_topsecrettopsecret")
    (home.root / "chat_history").write_text("a secret question")
    home.sessions_file.write_text("a secret answer")
    (home.logs / "mtplxd.log").write_text("ready\nwith hf_topsecrettopsecret\n")
    target = home.root.parent / f"{home.root.name}.zip"
    document = mtplx("doctor", "--json", "--bundle", str(target)).document
    assert document["bundle"] == str(target)
    assert target.stat().st_mode & 0o077 == 0
    with zipfile.ZipFile(target) as bundle:
        parts = {name: bundle.read(name).decode() for name in bundle.namelist()}
    target.unlink()
    assert {"doctor.json", "settings.json", "service.json", "status.json", "logs/mtplxd.log"} == set(parts)
    assert "secret" not in "".join(parts.values()).replace("hf_topsecret", "secret")
    assert "ready" in parts["logs/mtplxd.log"]
    assert "smollm2-135m" in parts["status.json"]


def test_a_bundle_that_cannot_be_written_is_told(mtplx) -> None:
    result = mtplx("doctor", "--bundle", "/nowhere/at/all.zip")
    assert result.code == 3
    assert "/nowhere/at/all.zip" in result.err
