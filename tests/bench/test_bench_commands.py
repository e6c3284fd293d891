"""The bench commands run on a small pack and write results that say what they should. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.tiny_pack import make_tiny_pack

BENCH = Path(__file__).parent
LIMIT_S = 300


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_pack(tmp_path_factory.mktemp("packs") / "tiny")


def run_bench(name: str, pack: Path, out: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, str(BENCH / f"{name}.py"), "--model", str(pack), "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    assert not list(out.glob("*.partial.jsonl"))
    return found


def test_peers_are_compared_with_both_samplers(pack: Path, tmp_path: Path) -> None:
    found = run_bench("peers", pack, tmp_path, "--prompts", "2", "--max-tokens", "8")
    assert len(found["samples"]) == 2
    for sampler in ("greedy", "sampled"):
        pairs = [
            sample[f"{sampler}_ours"] / sample[f"{sampler}_mlx_lm"] for sample in found["samples"].values()
        ]
        assert min(pairs) <= found[f"{sampler}_ratio"] <= max(pairs)
    assert found["place"]["mlx"]


def test_an_interrupted_bench_goes_on_from_its_samples(pack: Path, tmp_path: Path) -> None:
    settings = {"model": str(pack), "suite": "mixed", "prompts": 2, "max_tokens": 8}
    known = {f"{name}_{arm}": 1.0 for name in ("greedy", "sampled") for arm in ("ours", "mlx_lm")}
    lines = [json.dumps(settings), json.dumps(["0", known])]
    (tmp_path / "peers.partial.jsonl").write_text("\n".join(lines) + "\n")
    found = run_bench("peers", pack, tmp_path, "--prompts", "2", "--max-tokens", "8")
    assert found["samples"]["0"] == known
    assert found["samples"]["1"] != known


def test_samples_of_another_setting_are_not_taken(pack: Path, tmp_path: Path) -> None:
    known = {f"{name}_{arm}": 1.0 for name in ("greedy", "sampled") for arm in ("ours", "mlx_lm")}
    settings = {"model": str(pack), "suite": "mixed", "prompts": 1, "max_tokens": 9}
    (tmp_path / "peers.partial.jsonl").write_text(f"{json.dumps(settings)}\n{json.dumps(['0', known])}\n")
    found = run_bench("peers", pack, tmp_path, "--prompts", "1", "--max-tokens", "8")
    assert found["samples"]["0"] != known


def test_greedy_text_is_compared_at_every_depth(pack: Path, tmp_path: Path) -> None:
    found = run_bench(
        "greedy_identity", pack, tmp_path, "--prompts", "2", "--max-tokens", "12", "--depths", "0,1,3"
    )
    assert found["texts"] == 4
    assert found["passed"]
    assert found["divergences"] == 0


def test_the_socket_is_compared_with_the_daemon_itself(pack: Path, tmp_path: Path) -> None:
    options = ("--prompts", "2", "--max-tokens", "8", "--repeats", "1", "--depths", "0,1")
    found = run_bench("transport", pack, tmp_path, *options)
    assert set(found["socket_over_inprocess"]) == {"0", "1"}
    assert all(len(sample["ratios"]) == 2 for sample in found["samples"].values())


def test_waits_and_memory_are_told(pack: Path, tmp_path: Path) -> None:
    found = run_bench("latency", pack, tmp_path, "--prompts", "1", "--max-tokens", "4", "--repeats", "1")
    for name in ("ready_s", "status_s", "help_s", "load_s", "weights_mb"):
        assert found[name] > 0
