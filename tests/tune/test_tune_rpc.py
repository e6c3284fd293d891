"""Tuning through a real daemon and its client: what is told, kept, used, shown, cleared; no time is asserted.

What wins here depends on this machine's clock, so winners are made by writing the record that a run would have left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client
from mtplx_client.events import Progress
from mtplx_client.tunings import Tuning
from mtplx_proto.v1 import tuning_pb2
from mtplxd import __version__
from mtplxd.errors import FailedPrecondition, InvalidArgument, MtplxError
from mtplxd.platform.thermal import ORDER
from mtplxd.rpc.tunes import read_tune
from mtplxd.tune.tuned import SECTION
from support.daemon_process import DaemonProcess, running_daemon, short_folder
from support.fake_smc import FakeSmc
from support.fand import Fand
from support.tiny_pack import make_tiny_pack
from support.waiting import until

TOKENS = 6
ASKED: dict[str, Any] = {"model": "tiny", "depths": (1,), "max_tokens": TOKENS}
VERDICTS = {"depth_wins", "no_depth_beats_plain", "acceptance_collapsed", "throttled"}


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with short_folder() as home:
        make_tiny_pack(home / "packs" / "tiny")
        make_tiny_pack(home / "packs" / "headless", head=False)
        yield home


@pytest.fixture(scope="module")
def smc(home: Path) -> FakeSmc:
    return FakeSmc(home / "smc")


@pytest.fixture(scope="module")
def daemon(home: Path, smc: FakeSmc) -> Iterator[DaemonProcess]:
    helper = Fand(home / "fand", smc).start()
    with running_daemon(home, MTPLXD_FAN_SOCKET=str(helper.socket)) as process:
        yield process
    helper.kill()


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(socket=daemon.socket) as client:
        yield client


@pytest.fixture(scope="module")
def tuned(daemon: DaemonProcess) -> tuple[Tuning, list[Progress]]:
    said: list[Progress] = []
    with Client(socket=daemon.socket) as client:
        found = client.tune(
            "tiny", depths=(1, 2), suite="chat", max_tokens=TOKENS, no_save=True, on_progress=said.append
        )
    return found, said


def test_every_row_has_all_that_is_needed_to_judge_it(tuned: tuple[Tuning, list[Progress]]) -> None:
    found, _ = tuned
    assert [row.depth for row in found.rows] == [0, 1, 2]
    for row in found.rows:
        assert (row.suite, row.prompts, row.fan_mode) == ("chat", 8, "held")
        assert row.tok_s > 0
        assert row.ci95[0] <= row.ratio <= row.ci95[1]
        assert row.context > 0
        assert row.thermal in ORDER
        assert row.power
        assert len(row.acceptance_by_position) == row.depth
    assert found.rows[0].ratio == 1.0
    machine = found.machine
    assert machine.chip
    assert machine.memory
    assert machine.bandwidth_gb_s > 0
    assert machine.blas
    assert machine.mlx
    assert (found.model, found.max_tokens, found.suite) == ("tiny", TOKENS, "chat")
    assert found.key
    assert found.fingerprint_body
    assert found.fingerprint_head
    assert not found.cached


def test_plain_decoding_is_looked_at_three_times_beside_the_pairs(
    tuned: tuple[Tuning, list[Progress]],
) -> None:
    found, said = tuned
    assert len(found.order) == 8 * 3 + 3
    assert [found.order[at] for at in (0, 13, 26)] == ["0:0"] * 3
    assert min(found.drift.start, found.drift.middle, found.drift.end) > 0
    assert found.drift.took_s > 0
    measuring = [step for step in said if step.stage == "measure"]
    assert measuring[-1].done == measuring[-1].total == 27


def test_a_verdict_is_one_of_those_that_are_promised_and_nothing_is_saved_unasked(
    tuned: tuple[Tuning, list[Progress]], home: Path
) -> None:
    decision = tuned[0].decision
    assert decision.verdict in VERDICTS
    assert not decision.saved
    assert (decision.depth is not None) == (decision.verdict == "depth_wins")
    assert decision.message
    assert SECTION not in _file(home)


def test_the_sampler_is_the_one_that_bench_has_where_the_pack_says_nothing(
    tuned: tuple[Tuning, list[Progress]],
) -> None:
    assert (tuned[0].sampler.temperature, tuned[0].sampler.top_p) == (0.6, 0.95)


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"prompts": 7}, InvalidArgument, "too few prompts to decide by"),
        ({"prompts": 1000}, InvalidArgument, "too many prompts"),
        ({"max_tokens": 1}, InvalidArgument, "too few tokens to measure"),
        ({"max_tokens": 1_000_000}, InvalidArgument, "answers are longer than the context"),
        ({"context": 1_000_000}, InvalidArgument, "prompts are longer than the context"),
        ({"suite": "chatt"}, InvalidArgument, "unknown suite"),
        ({"depths": (0,)}, InvalidArgument, "plain decoding alone"),
        ({"model": "headless"}, FailedPrecondition, "no head to tune"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_measured(
    client: Client, wrong: dict[str, Any], kind: type[MtplxError], says: str
) -> None:
    asked: dict[str, Any] = {"model": "tiny", "depths": (1,), "max_tokens": 2, **wrong}
    said: list[Progress] = []
    with pytest.raises(kind, match=says):
        client.tune(**asked, on_progress=said.append)
    assert not [step for step in said if step.stage == "measure"]


def test_prompts_are_filled_up_and_fans_left_alone_where_that_is_asked_for(
    client: Client, smc: FakeSmc
) -> None:
    until(lambda: smc.automatic)
    before = smc.get("manual_writes")
    found = client.tune("tiny", depths=(1,), max_tokens=2, context=300, no_save=True, no_fans=True)
    assert 300 <= found.rows[0].context < 400
    assert {row.fan_mode for row in found.rows} == {"automatic"}
    assert smc.get("manual_writes") == before


def test_a_client_that_leaves_gives_engine_and_model_back(
    client: Client, daemon: DaemonProcess, home: Path
) -> None:
    class Left(Exception):
        pass

    def leave(step: Progress) -> None:
        if step.stage == "measure" and step.done == 1:
            raise Left

    before = _file(home)
    with pytest.raises(Left), Client(socket=daemon.socket) as other:
        other.tune("tiny", depths=(1,), max_tokens=400, on_progress=leave)
    assert client.complete("hi", model="tiny", max_tokens=2, force=True).usage.completion_tokens > 0
    client.unload("tiny")
    assert _file(home).get(SECTION) == before.get(SECTION)


def test_what_a_run_leaves_is_used_by_the_next_daemon_shown_and_cleared() -> None:
    """Each daemon has ended before the record that it finds next is written."""
    with short_folder() as home:
        make_tiny_pack(home / "packs" / "tiny")
        with running_daemon(home) as process, Client(socket=process.socket) as client:
            first = client.tune(**ASKED, accept_throttled=True)
        assert (
            first.decision.saved == (first.decision.verdict == "depth_wins") == bool(_file(home).get(SECTION))
        )
        _write_winner(home, first, depth=2, mlx="0.1")
        with running_daemon(home) as process, Client(socket=process.socket) as client:
            _check_used(client)
            client.unload("tiny")
            again = client.tune(**ASKED, accept_throttled=True)
            assert not again.cached  # other versions: it is measured again
            assert again.decision.saved != again.decision.cleared
        assert bool(_file(home)[SECTION]) == again.decision.saved
        _write_winner(home, again, depth=1)
        with running_daemon(home) as process, Client(socket=process.socket) as client:
            _check_cached(client, again)


def _check_used(client: Client) -> None:
    resident = client.load("tiny", force=True)
    assert resident.tuned is not None
    assert (resident.depth, resident.tuned.depth, resident.tuned.stale, resident.tuned.used) == (
        2,
        2,
        True,
        True,
    )
    assert client.complete("hi", model="tiny", max_tokens=4, force=True).stats.depth == 2
    assert client.complete("hi", model="tiny", max_tokens=4, depth=1, force=True).stats.depth == 1
    [shown] = client.ps()
    assert shown.tuned is not None
    assert shown.tuned.ratio == pytest.approx(1.4)
    assert shown.paying is not None  # the tuned curve says it until the controller has seen enough
    assert shown.paying.break_even > 0
    reply = client.complete("hi", model="tiny", max_tokens=140, depth=1, ignore_eos=True, force=True)
    assert reply.stats.paying is not None  # by now the controller has seen enough of its own
    chosen = client.load("tiny", depth=1, force=True)
    assert chosen.tuned is not None
    assert (chosen.depth, chosen.tuned.used) == (1, False)
    assert client.complete("hi", model="tiny", max_tokens=4, force=True).stats.depth == 1


def _check_cached(client: Client, before: Tuning) -> None:
    cached = client.tune(**ASKED)
    assert cached.cached
    assert (cached.model, cached.key) == ("tiny", before.key)
    assert [row.tok_s for row in cached.rows] == [row.tok_s for row in before.rows]
    assert not client.tune(**{**ASKED, "max_tokens": TOKENS + 1}, no_save=True).cached
    assert not client.tune(**ASKED, retune=True, no_save=True).cached


def _file(home: Path) -> dict[str, Any]:
    path = home / "tuning.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    assert isinstance(found, dict)
    return found


def _write_winner(home: Path, found: Tuning, depth: int, **versions: str) -> None:
    """The record of a run that won, in the place that this run's key names."""
    rows = [
        {"depth": row.depth, "tok_s": row.tok_s, "acceptance_by_position": list(row.acceptance_by_position)}
        for row in found.rows
    ]
    record = {
        "format": 1,
        "versions": {"os": found.machine.os, "mlx": found.machine.mlx, "mtplxd": __version__, **versions},
        "depth": depth,
        "ratio": 1.4,
        "ci95": [1.3, 1.5],
        "acceptance": 0.6,
        "measured_at": 1.7e9,
        "settings": read_tune(tuning_pb2.TuneRequest(depths=[1], max_tokens=TOKENS)).settings,
        "curve": {
            "version": 1,
            "acceptance": {"reached": [100.0, 60.0], "passed": [60.0, 36.0]},
            "seconds": {"": [[1, 0, 0.1], [1, 1, 0.11], [1, 2, 0.12]]},
        },
        "result": {"model": found.model, "key": found.key, "rows": rows},
    }
    everything = _file(home)
    everything[SECTION] = {found.key.rsplit("-", 1)[0]: record}
    (home / "tuning.json").write_text(json.dumps(everything))
