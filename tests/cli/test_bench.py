"""`bench decode`: what is asked, in the daemon or over the socket."""

from __future__ import annotations

from typing import Any

from mtplx_proto.v1 import tuning_pb2
from support.fake_daemon import FakeDaemon, final, text


def test_inside_the_daemon_by_default_with_the_stated_sampler(mtplx, daemon: FakeDaemon) -> None:
    assert mtplx("bench", "decode", "--model", "m", "--prompts", "3", "--suite", "chat").code == 0
    (asked,) = daemon.requests("Measure")
    assert (asked.model, list(asked.depths), asked.max_tokens) == ("m", [0, 1, 2, 3], 128)
    assert (asked.prompts, asked.suite) == (3, "chat")
    assert (asked.sampler.temperature, asked.sampler.top_p) == (0.6, 0.95)
    assert not asked.sampler.HasField("seed")


def test_given_values_beat_the_stated_ones(mtplx, daemon: FakeDaemon) -> None:
    mtplx(
        "bench",
        "decode",
        "--temperature",
        "0",
        "--top-p",
        "1",
        "--seed",
        "5",
        "--depths",
        "2,0,2",
        "--max-tokens",
        "9",
    )
    (asked,) = daemon.requests("Measure")
    assert (asked.sampler.temperature, asked.sampler.top_p, asked.sampler.seed) == (0, 1, 5)
    assert (list(asked.depths), asked.max_tokens) == ([2, 0], 9)


def test_over_the_socket_the_command_times_itself(mtplx, daemon: FakeDaemon) -> None:
    def answer(_request: Any, _context: object) -> Any:
        yield text("a", 1)
        yield text("b", 2)
        yield final("length", "max_tokens")

    daemon.answer = answer
    daemon.measurement = tuning_pb2.Measurement(
        rows=[tuning_pb2.MeasureRow(depth=1, tok_s=71, ratio_vs_plain=1.5)], model="smollm2-135m"
    )
    document = mtplx("bench", "decode", "--path", "socket", "--depths", "0,1", "--json").document
    assert daemon.requests("Measure") == []
    (asked,) = daemon.requests("Summarise")
    assert [(run.prompt, run.depth, run.tokens) for run in asked.runs] == [
        (0, 0, 2),
        (0, 1, 2),
        (1, 1, 2),
        (1, 0, 2),
    ]
    assert all(0 < run.first_s < run.last_s for run in asked.runs)
    assert document["path"] == "socket"
    (row,) = document["rows"]
    assert set(row) >= {
        "depth", "tok_s", "ratio_vs_plain", "tokens_per_round", "acceptance_by_position", "round_ms",
        "ideal_round_ms", "efficiency",
    }  # fmt: skip
    assert (row["ratio_vs_plain"], row["ideal_round_ms"], row["efficiency"]) == (1.5, None, None)


def test_the_document_has_the_fields_that_programs_rely_on(mtplx) -> None:
    document = mtplx("bench", "decode", "--json").document
    assert set(document) >= {"rows", "machine", "blas", "model", "sampler", "order"}
