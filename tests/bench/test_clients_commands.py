"""The commands that weigh many clients run on a small pack, and their results say what they should.

No time is asserted: a command whose bounds are times may end with 1 here, and must still write its result.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.tiny_pack import make_tiny_pack

BENCH = Path(__file__).parent
LIMIT_S = 300


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_pack(tmp_path_factory.mktemp("packs") / "tiny")


def command(name: str, pack: Path, out: Path, *options: str) -> list[str]:
    return [sys.executable, str(BENCH / f"{name}.py"), "--model", str(pack), "--out", str(out), *options]


def run_bench(name: str, pack: Path, out: Path, *options: str) -> dict[str, Any]:
    """The result; a command may say that a bound was missed, never anything else."""
    done = subprocess.run(
        command(name, pack, out, *options), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.stderr == ""
    found: dict[str, Any] = json.loads((out / f"{name}.json").read_text())
    assert done.returncode == (0 if found["passed"] else 1)
    assert not list(out.glob("*.partial.jsonl"))
    return found


def test_texts_decoded_together_are_those_decoded_alone(pack: Path, tmp_path: Path) -> None:
    found = run_bench("together", pack, tmp_path, "--count", "16", "--clients", "8", "--max-tokens", "16")
    assert found["passed"], found
    counts = [found[f"{name}_texts"] for name in ("greedy", "coupled", "reproducible", "sampled")]
    assert counts == [8, 3, 3, 2]
    assert found["most_running"] > 1


def test_a_text_that_differs_is_found(pack: Path, tmp_path: Path) -> None:
    options = ("--count", "5", "--clients", "2", "--max-tokens", "8")
    settings = {"model": str(pack), "suite": "mixed", "prompts": 8, "max_tokens": 8, "count": 5, "clients": 2}
    other = {"tokens": [299] * 8, "outcome": "length"}
    lines = [json.dumps(settings), *(json.dumps([f"alone {at}", other]) for at in range(5))]
    (tmp_path / "together.partial.jsonl").write_text("\n".join(lines) + "\n")
    found = run_bench("together", pack, tmp_path, *options)
    assert not found["passed"]
    assert found["greedy_divergences"] == found["greedy_texts"] == 3
    assert found["coupled_divergences"] == found["coupled_texts"] == 1
    assert found["reproducible_differences"] == found["reproducible_texts"] == 1
    assert 0 < found["noise"] < 1e-4
    assert min(map(abs, found["greedy_margins"])) > 2 * found["noise"]


def test_what_a_long_prompt_costs_others_is_told(pack: Path, tmp_path: Path) -> None:
    options = ("--long", "600", "--repeats", "1", "--stream-tokens", "400")
    found = run_bench("arrivals", pack, tmp_path, *options)
    [sample] = found["samples"].values()
    assert sample["behind_s"] == pytest.approx(sample["short_ttft_s"] - sample["alone_ttft_s"])
    assert sample["gap_over_round"] == pytest.approx(sample["longest_gap_s"] / sample["round_s"])
    assert sample["long_tokens"] == 600


def test_rounds_and_waits_of_clients_are_compared(pack: Path, tmp_path: Path) -> None:
    options = ("--clients", "3", "--flood", "6", "--repeats", "1", "--max-tokens", "16")
    found = run_bench("fairness", pack, tmp_path, *options)
    equals = found["samples"]["equals 0"]
    assert len(equals["rounds"]) == 3
    assert equals["texts"] == 1
    assert found["rounds_apart"] == max(equals["rounds"]) - min(equals["rounds"])
    assert found["samples"]["flood 0"]["flood_served"] == 6


def test_modes_are_compared_with_one_plain_client(pack: Path, tmp_path: Path) -> None:
    options = ("--clients", "2", "--modes", "1,auto", "--suites", "chat", "--max-tokens", "12")
    found = run_bench("clients_modes", pack, tmp_path, *options)
    one, two = found["rows"]
    assert (one["clients"], two["clients"]) == (1, 2)
    assert set(two["over_plain_one"]) == {"plain", "1", "auto"}
    assert one["over_plain_one"]["plain"] == 1.0
    plain = found["samples"]["chat 0 1 plain"]["tok_s_total"]
    assert two["over_plain_one"]["1"] == pytest.approx(found["samples"]["chat 0 2 1"]["tok_s_total"] / plain)
    beside = found["samples"]["chat 0 2 plain"]["tok_s_total"]
    assert two["over_plain"]["1"] == pytest.approx(found["samples"]["chat 0 2 1"]["tok_s_total"] / beside)
    assert set(found["auto_over_best"]) == {"chat, 1", "chat, 2"}


def test_modes_are_compared_turn_by_turn_and_measured_ones_are_kept(pack: Path, tmp_path: Path) -> None:
    """The machine is ten times as slow in the second of three turns: no ratio shows it."""
    options = ("--clients", "1", "--modes", "1,auto", "--suites", "chat", "--turns", "3", "--max-tokens", "8")
    settings = {"model": str(pack), "suite": "mixed", "prompts": 8, "max_tokens": 8, "clients": "1"}
    settings |= {"modes": "1,auto", "suites": "chat", "turns": 3}
    shown = dict.fromkeys(
        ("tok_s_asked", "tok_s_all_decoding", "round_s", "acceptance", "slowest_over_fastest"), 1
    )
    lines = [json.dumps(settings)]
    for turn, speed in enumerate((100.0, 10.0, 130.0)):
        for mode, ratio in (("plain", 1.0), ("1", 1.25), ("auto", 1.2)):
            sample = {"tok_s_total": speed * ratio, **shown}
            lines.append(json.dumps([f"chat {turn} 1 {mode}", sample]))
    (tmp_path / "clients_modes.partial.jsonl").write_text("\n".join(lines) + "\n")
    found = run_bench("clients_modes", pack, tmp_path, *options)
    assert found["speculative_1"] == pytest.approx(1.25)
    assert found["auto_over_best"] == {"chat, 1": pytest.approx(0.96)}
    assert found["misses"] == ["auto, chat, 1: 0.960"]


def test_one_client_is_compared_with_another_checkout(pack: Path, tmp_path: Path) -> None:
    here = str(BENCH.parents[1])
    options = ("--against", here, "--prompts", "1", "--max-tokens", "8", "--depths", "0,1")
    found = run_bench("alone", pack, tmp_path, *options)
    [plain, drafted] = found["samples"].values()
    assert plain["same_text"]
    assert found["ratio_depth_1"] == pytest.approx(drafted["now_tok_s"] / drafted["before_tok_s"])


def test_a_soak_leaves_nothing_behind(pack: Path, tmp_path: Path) -> None:
    options = ("--minutes", "0.05", "--clients", "8", "--table", "12", "--max-tokens", "24", "--fill", "2")
    found = run_bench("soak", pack, tmp_path, *options)
    assert found["requests"] > 8
    assert found["texts"] > 0
    empty = (
        "wrong_texts",
        "wrong_ends",
        "faults",
        "cancelled_late",
        "left_over",
        "exit",
        "stderr",
        "tracebacks",
    )
    assert {name: found[name] for name in empty if found[name]} == {}


def test_a_soak_that_is_interrupted_says_what_it_saw(pack: Path, tmp_path: Path) -> None:
    options = ("--minutes", "60", "--clients", "2", "--table", "2", "--max-tokens", "8", "--fill", "1")
    partial = tmp_path / "soak.partial.jsonl"
    with subprocess.Popen(
        command("soak", pack, tmp_path, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        end = time.monotonic() + LIMIT_S
        while "soaking" not in process.stdout.readline():
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < end
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    assert err == "", out
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["minutes"] < 60
    assert found["left_over"] == 0
    assert not partial.exists()


def test_modes_that_play_at_once_are_compared(pack: Path, tmp_path: Path) -> None:
    options = ("--clients", "1,2", "--modes", "1,auto", "--suites", "chat", "--max-tokens", "12")
    found = run_bench("modes_beside", pack, tmp_path, *options)
    samples = found["samples"]
    for clients in (1, 2):
        plain, drafted = (samples[f"chat 0 {clients} {mode}"] for mode in ("plain", "1"))
        assert found["over_plain"][str(clients)]["1"] == pytest.approx(
            drafted["tok_s_total"] / plain["tok_s_total"], abs=1e-4
        )
        assert (plain["drafted_a_round"], plain["tokens_a_row"]) == (0, 1)
        assert plain["untimed"] <= plain["rounds"] / 2
        assert 0 < drafted["drafted_a_round"] <= 1
    assert set(found["auto_over_best"]) == {"chat, 1", "chat, 2"}
