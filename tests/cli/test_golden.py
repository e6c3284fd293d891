"""What the commands print, word for word. MTPLX_UPDATE_GOLDEN=1 writes the files anew; read the difference then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mtplx_client.cli.root import COMMANDS
from mtplx_proto.v1 import common_pb2, models_pb2, system_pb2, tuning_pb2
from support.fake_builds import lost
from support.fake_daemon import Failure, FakeDaemon, resident

GOLDEN = Path(__file__).parent / "golden"
HELP = {
    "help": ["--help"],
    "help_config_get": ["config", "get", "--help"],
    "help_config_set": ["config", "set", "--help"],
    "help_config_path": ["config", "path", "--help"],
    "help_bench_decode": ["bench", "decode", "--help"],
    "help_bench_clients": ["bench", "clients", "--help"],
    **{
        f"help_sessions_{name}": ["sessions", name, "--help"]
        for name in ("ls", "show", "rename", "export", "rm")
    },
    **{f"help_cache_{name}": ["cache", name, "--help"] for name in ("stats", "verify", "prune", "clear")},
    **{
        f"help_forge_{name}": ["forge", name, "--help"]
        for name in ("probe", "build", "runs", "resume", "cancel", "publish")
    },
    **{
        f"help_service_{name}": ["service", name, "--help"]
        for name in ("install", "uninstall", "start", "stop", "restart", "status", "logs")
    },
    **{
        f"help_thermal_{name}": ["thermal", name, "--help"]
        for name in ("status", "set", "install-helper", "uninstall-helper")
    },
    **{f"help_{name}": [name, "--help"] for name in COMMANDS},
}
ANSWERS = {
    "bare": [],
    "version": ["--version"],
    "version_json": ["--version", "--json"],
    "status": ["status"],
    "status_json": ["status", "--json"],
    "ls": ["ls"],
    "ls_json": ["ls", "--json"],
    "show": ["show", "smollm2-135m"],
    "show_json": ["show", "smollm2-135m", "--json"],
    "ps": ["ps"],
    "ps_json": ["ps", "--json"],
    "pull": ["pull", "smollm2-135m"],
    "pull_json": ["pull", "smollm2-135m", "--json"],
    "load": ["load", "smollm2-135m"],
    "load_json": ["load", "smollm2-135m", "--json"],
    "unload": ["unload", "smollm2-135m"],
    "unload_json": ["unload", "smollm2-135m", "--json"],
    "rm": ["rm", "smollm2-135m", "--yes"],
    "rm_json": ["rm", "smollm2-135m", "--yes", "--json"],
    "wait_ready": ["wait-ready"],
    "cancel": ["cancel", "r1"],
    "cancel_json": ["cancel", "r1", "--json"],
    "cancel_unknown": ["cancel", "r9"],
    "cancel_unknown_json": ["cancel", "r9", "--json"],
    "generate": ["generate", "Name three rivers."],
    "generate_stats": ["generate", "Name three rivers.", "--stats"],
    "generate_json": ["generate", "Name three rivers.", "--json"],
    "bench_decode": ["bench", "decode"],
    "bench_decode_json": ["bench", "decode", "--json"],
    "tune": ["tune", "smollm2-135m"],
    "tune_json": ["tune", "smollm2-135m", "--json"],
    "verify": ["verify", "smollm2-135m"],
    "verify_json": ["verify", "smollm2-135m", "--json"],
    "forge_probe": ["forge", "probe", "org/model"],
    "forge_probe_json": ["forge", "probe", "org/model", "--json"],
    "forge_build": ["forge", "build", "org/model", "--name", "mine"],
    "forge_build_json": ["forge", "build", "org/model", "--name", "mine", "--json"],
    "forge_build_detach": ["forge", "build", "org/model", "--name", "mine", "--detach"],
    "forge_build_detach_json": ["forge", "build", "org/model", "--name", "mine", "--detach", "--json"],
    "forge_runs": ["forge", "runs"],
    "forge_runs_json": ["forge", "runs", "--json"],
    "forge_runs_follow": ["forge", "runs", "--follow"],
    "forge_resume": ["forge", "resume", "mine"],
    "forge_cancel": ["forge", "cancel", "mine"],
    "forge_cancel_json": ["forge", "cancel", "mine", "--json"],
    "forge_publish": ["forge", "publish", "mine", "ada/mine"],
    "forge_publish_json": ["forge", "publish", "mine", "ada/mine", "--dry-run", "--json"],
    "thermal_status": ["thermal", "status"],
    "thermal_status_json": ["thermal", "status", "--json"],
    "thermal_set": ["thermal", "set", "max"],
    "thermal_set_json": ["thermal", "set", "auto", "--json"],
    "config_get": ["config", "get"],
    "sessions_ls": ["sessions", "ls"],
    "sessions_ls_json": ["sessions", "ls", "--json"],
    "sessions_show": ["sessions", "show", "rivers"],
    "sessions_show_json": ["sessions", "show", "rivers", "--json"],
    "sessions_rename": ["sessions", "rename", "rivers", "streams"],
    "sessions_rename_json": ["sessions", "rename", "rivers", "streams", "--json"],
    "sessions_export": ["sessions", "export", "rivers"],
    "sessions_export_format_json": ["sessions", "export", "rivers", "--format", "json"],
    "sessions_export_json": ["sessions", "export", "rivers", "--json"],
    "sessions_rm": ["sessions", "rm", "rivers", "--yes"],
    "sessions_rm_json": ["sessions", "rm", "rivers", "--yes", "--json"],
    "cache_stats": ["cache", "stats"],
    "cache_stats_json": ["cache", "stats", "--json"],
    "cache_verify": ["cache", "verify"],
    "cache_verify_json": ["cache", "verify", "--json"],
    "cache_prune": ["cache", "prune"],
    "cache_prune_json": ["cache", "prune", "--json"],
    "cache_clear": ["cache", "clear", "--yes"],
    "cache_clear_json": ["cache", "clear", "--sessions", "--yes", "--json"],
}
ERRORS = {
    "unknown_command": ["generte", "hi"],
    "unknown_subcommand": ["config", "gett"],
    "unknown_option": ["generate", "hi", "--temprature", "1"],
    "unknown_option_json": ["generate", "hi", "--temprature", "1", "--json"],
    "missing_argument": ["show"],
    "bad_value": ["generate", "hi", "--seed", "red"],
    "bad_timeout": ["status", "--timeout", "0"],
    "bad_keep_alive": ["load", "smollm2-135m", "--keep-alive", "soon"],
    "bad_depths": ["bench", "decode", "--depths", "0,x"],
    "empty_prompt": ["generate", " "],
    "too_many_arguments": ["status", "now"],
    "not_found": ["show", "smolm2"],
    "no_memory": ["load", "smollm2-135m"],
    "no_memory_json": ["load", "smollm2-135m", "--json"],
}


@pytest.fixture(autouse=True)
def _scene(daemon: FakeDaemon) -> None:
    daemon.progress = [
        common_pb2.Progress(stage="fetch", done=done, total=100 << 20, unit="bytes", eta_s=eta)
        for done, eta in ((0, 0), (10 << 20, 90), (30 << 20, 12.4), (100 << 20, 0))
    ]
    request = system_pb2.InFlight
    daemon.status.in_flight.extend([
        request(id="r1", client="c", model="smollm2-135m", state="decode", prompt_tokens=12, completion_tokens=30,
                age_s=1.5, prefilled=11, rounds=16, depth=2, tok_s=24.5, priority="interactive"),
        request(id="r2", client="c", model="smollm2-135m", state="prefill", prompt_tokens=4000, prefilled=512,
                age_s=0.5, cached_tokens=256, priority="background"),
        request(id="r3", client="d", model="smollm2-135m", state="queue", waits_for="its turn", age_s=0.25,
                prompt_tokens=7, priority="interactive"),
    ])  # fmt: skip
    daemon.status.engine.CopyFrom(
        system_pb2.EngineState(
            rows=1,
            prefilling=1,
            heartbeat_age_s=0.04,
            alive=True,
            prefixes=system_pb2.PrefixCache(bytes=8 << 20, limit=64 << 20, entries=2, hits=3, misses=5),
        )
    )
    slow = resident()
    slow.name, slow.state, slow.keep_alive_s = "slow", "loading", 600
    slow.degraded.append("head_failed")
    slow.apart = "its caches cannot be cut"
    daemon.status.models.append(slow)
    daemon.status.degraded.append("reference_blas")
    row = tuning_pb2.MeasureRow
    daemon.measurement = tuning_pb2.Measurement(
        rows=[
            row(depth=0, tok_s=51.25, ratio_vs_plain=1.0, tokens_per_round=1.0, round_ms=19.5, ideal_round_ms=19.0,
                efficiency=0.974, rounds=254, runs=2),
            row(depth=2, tok_s=70.5, ratio_vs_plain=1.375, tokens_per_round=1.75, round_ms=24.75, ideal_round_ms=23.5,
                efficiency=0.949, rounds=140, runs=2, acceptance_by_position=[0.5, 0.25]),
        ],
        machine=tuning_pb2.Machine(
            chip="Apple M4", memory=16 << 30, cores=10, os="macOS 15.1", python="3.12.1", mlx="0.32", blas="Accelerate"
        ),
        model="smollm2-135m",
        sampler=common_pb2.Sampler(temperature=0.5, top_p=0.75, acceptance="token", repetition_penalty=1),
        order=["0:0", "0:2", "1:2", "1:0"],
        runs=[tuning_pb2.Run(prompt=at, depth=0, tokens=128, first_s=0.25, last_s=2.75) for at in range(2)],
        suite="mixed",
        max_tokens=128,
        notes=["depth 9 left out: this head reaches 8"],
    )  # fmt: skip
    daemon.verification = tuning_pb2.Verification(
        model="smollm2-135m", shape_noise=2.5e-5, passed=True, recorded=True, depths=[0, 1, 2],
        greedy=tuning_pb2.Identity(tokens=384), coupled=tuning_pb2.Identity(tokens=760, near_ties=1),
        law=tuning_pb2.LawTest(test="chi-square of 16 cells", tokens=2016, statistic=14.5, p_value=0.5, power=0.97,
            alternative="a temperature 15 % too high"),
        fingerprint_body="sha256:0b0d", fingerprint_head="sha256:4ead",
    )  # fmt: skip


@pytest.mark.parametrize("name", [*HELP, *ANSWERS])
def test_output(name: str, mtplx, daemon: FakeDaemon, home: Path) -> None:
    check(name, {**HELP, **ANSWERS}[name], mtplx, daemon, home)


@pytest.mark.parametrize("name", ERRORS)
def test_error(name: str, mtplx, daemon: FakeDaemon, home: Path) -> None:
    daemon.failures["Show"] = Failure("NOT_FOUND", "no such model", "smolm2", "did you mean smollm2-135m?")
    daemon.failures["Load"] = Failure(
        "RESOURCE_EXHAUSTED", "not enough memory", "needs 30 GiB, 12 GiB left", "unload something"
    )
    check(name, ERRORS[name], mtplx, daemon, home)


def test_no_daemon(mtplx, daemon: FakeDaemon, home: Path) -> None:
    daemon.stop()
    check("no_daemon", ["status"], mtplx, daemon, home)
    check("no_daemon_json", ["ls", "--json"], mtplx, daemon, home)


def test_a_build_that_does_not_win(mtplx, daemon: FakeDaemon, home: Path) -> None:
    daemon.outcome = lost()
    check("forge_lost", ["forge", "build", "org/model", "--name", "mine"], mtplx, daemon, home)
    check("forge_lost_json", ["forge", "build", "org/model", "--name", "mine", "--json"], mtplx, daemon, home)
    daemon.builds.clear()
    check("forge_runs_empty", ["forge", "runs"], mtplx, daemon, home)


def test_no_packs_and_no_models(mtplx, daemon: FakeDaemon, home: Path) -> None:
    daemon.packs.clear()
    del daemon.status.models[:]
    check("ls_empty", ["ls"], mtplx, daemon, home)
    check("ps_empty", ["ps"], mtplx, daemon, home)


def test_what_is_damaged_among_the_packs(mtplx, daemon: FakeDaemon, home: Path) -> None:
    reason = "damaged weights file, 5 bytes where the header promises 9 (/p/cut): fetch it again"
    daemon.damaged.append(models_pb2.Damaged(name="cut", reason=reason))
    check("ls_damaged", ["ls"], mtplx, daemon, home)
    check("ls_damaged_json", ["ls", "--json"], mtplx, daemon, home)
    daemon.packs.clear()
    check("ls_only_damaged", ["ls"], mtplx, daemon, home)


def check(name: str, argv: list[str], mtplx, daemon: FakeDaemon, home: Path) -> None:
    """Compare a command's output with its file, or write the file."""
    result = mtplx(*argv)
    shown = f"exit {result.code}\n--- stdout\n{result.out}--- stderr\n{result.err}"
    shown = shown.replace(str(daemon.socket), "SOCKET").replace(str(home), "HOME")
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("MTPLX_UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    others = {
        "no_daemon",
        "no_daemon_json",
        "ls_empty",
        "ps_empty",
        "ls_damaged",
        "ls_damaged_json",
        "ls_only_damaged",
    }
    others |= {"forge_lost", "forge_lost_json", "forge_runs_empty"}
    assert {file.stem for file in GOLDEN.iterdir()} == {*HELP, *ANSWERS, *ERRORS, *others}
