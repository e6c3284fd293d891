"""`bench decode` and `bench clients`: what is asked, in the daemon or over the socket, and what is answered."""

from __future__ import annotations

from typing import Any

import pytest
from mtplx_proto.v1 import common_pb2, tuning_pb2
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


def _to_the_limit(_request: Any, _context: object) -> Any:
    for token in range(4):
        yield text("a", token)
    yield final("length", "max_tokens", stats=common_pb2.Stats(rounds=3))


def test_clients_are_measured_with_the_stated_sampler_and_fields(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = _to_the_limit
    result = mtplx("bench", "clients", "--clients", "1,2", "--repeats", "1", "--model", "m", "--json")
    assert result.code == 0
    document = result.document
    assert [row["clients"] for row in document["rows"]] == [1, 2]
    for row in document["rows"]:
        assert set(row) >= {
            "clients", "tok_s_total", "tok_s_plain_one", "ttft_p50_s", "ttft_p95_s", "slowest_over_fastest",
            "gap_over_round", "tok_s_plain_total", "ratio_vs_plain_one", "ratio_vs_plain_total",
            "rounds_least", "rounds_most",
        }  # fmt: skip
        assert row["ratio_vs_plain_one"] > 0
    assert set(document) >= {"model", "sampler", "machine", "blas", "suite", "max_tokens", "waves"}
    asked = [request for request in daemon.requests("Generate") if request.max_tokens == 96]
    assert {(r.sampler.temperature, r.sampler.top_p, r.ignore_eos) for r in asked} == {(0.6, 0.95, True)}


def test_plain_decoding_together_can_be_left_out(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = _to_the_limit
    result = mtplx("bench", "clients", "--clients", "2", "--repeats", "1", "--no-plain", "--json")
    (row,) = result.document["rows"]
    assert (row["tok_s_plain_total"], row["ratio_vs_plain_total"]) == (None, None)


def test_people_get_a_table_with_what_it_compares(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = _to_the_limit
    out = mtplx("bench", "clients", "--clients", "1,2", "--repeats", "1").out
    assert out.splitlines()[0].split()[:2] == ["clients", "tok/s"]
    assert "one client's plain decoding beside each row" in out


@pytest.mark.parametrize("known", [0, 10])
def test_prompts_that_were_read_before_are_told_for_they_flatter_first_tokens(
    mtplx, daemon: FakeDaemon, known: int
) -> None:
    def answer(_request: Any, _context: object) -> Any:
        yield text("a", 1)
        usage = common_pb2.Usage(prompt_tokens=12, cached_tokens=known, completion_tokens=1)
        yield final("length", "max_tokens", usage=usage)

    daemon.answer = answer
    out = mtplx("bench", "clients", "--clients", "2", "--repeats", "1").out
    assert ("20 prompt tokens had been read before" in out) == bool(known)
    assert ("read before" in out) == bool(known)


@pytest.mark.parametrize("bad", ["0", "1,x", "65", "", "2,-1"])
def test_numbers_of_clients_are_whole_and_within_reason(mtplx, daemon: FakeDaemon, bad: str) -> None:
    result = mtplx("bench", "clients", "--clients", bad)
    assert result.code == 2
    assert "1,2,4,8" in result.err
    assert daemon.requests("Generate") == []
