"""The flags of `generate` for sampling, structures and log-probabilities; each reaches the daemon or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.fake_daemon import FakeDaemon, final, logprobs, text

FLAGS = {
    "--temperature": ("temperature", 0.5),
    "--top-p": ("top_p", 0.25),
    "--top-k": ("top_k", 40),
    "--min-p": ("min_p", 0.125),
    "--presence-penalty": ("presence_penalty", 0.5),
    "--frequency-penalty": ("frequency_penalty", -0.5),
    "--repetition-penalty": ("repetition_penalty", 1.25),
    "--seed": ("seed", 7),
    "--acceptance": ("acceptance", "block"),
    "--draft-temperature": ("draft_temperature", 0.75),
    "--draft-top-k": ("draft_top_k", 9),
}
ALL_FLAGS = [word for flag, (_, value) in FLAGS.items() for word in (flag, str(value))]
EXPECTED = {**dict(FLAGS.values()), "reproducible": True}


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_every_flag_of_the_sampler_reaches_the_daemon(mtplx, daemon: FakeDaemon, command: str) -> None:
    words = ["generate", "hi"] if command == "generate" else ["chat"]
    flags = [*ALL_FLAGS, "--reproducible", "--logit-bias", "5:1.5", "--logit-bias", "9:-100"]
    assert mtplx(*words, *flags, stdin=b"hi\n").code == 0
    (asked,) = daemon.requests("Generate")
    assert {name: getattr(asked.sampler, name) for name in EXPECTED} == EXPECTED
    assert [(bias.token, bias.bias) for bias in asked.sampler.logit_bias] == [(5, 1.5), (9, -100)]


def test_bench_takes_them_too(mtplx, daemon: FakeDaemon) -> None:
    mtplx("bench", "decode", *ALL_FLAGS, "--reproducible", "--logit-bias", "5:1.5")
    (asked,) = daemon.requests("Measure")
    assert {name: getattr(asked.sampler, name) for name in EXPECTED} == EXPECTED
    assert [(bias.token, bias.bias) for bias in asked.sampler.logit_bias] == [(5, 1.5)]


def test_nothing_is_sent_for_flags_that_are_not_given(mtplx, daemon: FakeDaemon) -> None:
    mtplx("generate", "hi")
    (asked,) = daemon.requests("Generate")
    assert not asked.HasField("sampler")
    assert not asked.HasField("logprobs")
    assert asked.WhichOneof("structure") is None


def test_files_and_expressions_become_the_structure(mtplx, daemon: FakeDaemon, tmp_path: Path) -> None:
    schema, grammar = tmp_path / "s.json", tmp_path / "g.lark"
    schema.write_text('{"type": "object", "title": "Größe"}', encoding="utf-8")
    grammar.write_text('start: "yes" | "no"\n')
    mtplx("generate", "hi", "--json-schema", str(schema))
    mtplx("generate", "hi", "--grammar", str(grammar))
    mtplx("generate", "hi", "--regex", "[a-z]+ ")
    first, second, third = daemon.requests("Generate")
    assert first.json_schema == schema.read_text(encoding="utf-8")
    assert second.grammar == grammar.read_text()
    assert third.regex == "[a-z]+ "


BAD = {
    "a bias without a number": ["--logit-bias", "5"],
    "a bias of no token": ["--logit-bias", "the:1"],
    "a bias of a negative token": ["--logit-bias", "-5:1"],
    "a bias of many": ["--logit-bias", "5:much"],
    "two biases of a token": ["--logit-bias", "5:1", "--logit-bias", "5:2"],
    "a token beyond the wire": ["--logit-bias", "4294967296:1"],
    "an unknown rule": ["--acceptance", "typical"],
    "a negative number of alternatives": ["--logprobs", "-1"],
    "two structures": ["--regex", "a", "--grammar", "GOOD"],
    "no such schema": ["--json-schema", "MISSING"],
    "a schema that is a folder": ["--json-schema", "FOLDER"],
    "a schema that is no JSON": ["--json-schema", "BROKEN"],
    "a schema that is empty": ["--json-schema", "EMPTY"],
    "a schema that is no text": ["--json-schema", "BINARY"],
    "a schema as deep as the sea": ["--json-schema", "DEEP"],
    "a schema without end": ["--json-schema", "ENDLESS"],
    "a grammar without end": ["--grammar", "ENDLESS"],
    "no such grammar": ["--grammar", "MISSING"],
    "a grammar that is empty": ["--grammar", "EMPTY"],
    "a grammar that is no text": ["--grammar", "BINARY"],
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_one_line_and_reaches_nobody(
    name: str, mtplx, daemon: FakeDaemon, tmp_path: Path
) -> None:
    contents = {
        "GOOD": b"start: A", "BROKEN": b'{"type": }', "EMPTY": b" \n", "BINARY": b"\xff\xfe\x00", "DEEP": b"[" * 100_000
    }  # fmt: skip
    for file, content in contents.items():
        (tmp_path / file).write_bytes(content)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "ENDLESS").symlink_to("/dev/zero")
    words = [str(tmp_path / word) if word.isupper() else word for word in BAD[name]]
    result = mtplx("generate", "hi", *words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    flag = BAD[name][0]
    assert flag.removeprefix("--").split("-")[0] in result.err or str(tmp_path) in result.err
    assert daemon.requests("Generate") == []


def answer_with_logprobs(*_: object) -> Any:
    yield logprobs((11, -0.5, b"The"), law=-0.25)
    yield text("The", 11)
    yield logprobs((12, -1.5, b"\xf0"), law=0.0)
    yield text("", 12)
    yield final()


def test_logprobs_are_events_and_part_of_the_document(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = answer_with_logprobs
    events = mtplx("generate", "hi", "--logprobs", "1", "--law-logprobs", "--json").events
    (asked,) = daemon.requests("Generate")
    assert (asked.logprobs, asked.law_logprobs) == (1, True)
    assert [event["event"] for event in events] == ["logprobs", "text", "logprobs", "text", "final"]
    streamed = [entry for event in events if event["event"] == "logprobs" for entry in event["tokens"]]
    the = {"token": 11, "logprob": -0.5, "text": "The", "bytes": [84, 104, 101]}
    part = {"token": 12, "logprob": -1.5, "text": "\ufffd", "bytes": [240]}
    assert streamed == [{**the, "top": [the], "law": -0.25}, {**part, "top": [part], "law": 0.0}]
    assert events[-1]["logprobs"] == streamed
    assert [entry["token"] for entry in streamed] == events[-1]["tokens"]


def test_logprobs_that_were_not_asked_for_are_null(mtplx) -> None:
    assert mtplx("generate", "hi", "--json").events[-1]["logprobs"] is None


def test_people_read_logprobs_beside_the_answer(mtplx, daemon: FakeDaemon) -> None:
    daemon.answer = answer_with_logprobs
    result = mtplx("generate", "hi", "--logprobs", "1", "--law-logprobs")
    assert result.out == "The\n"
    assert result.err.splitlines() == [
        "TOKEN    ID  LOGPROB  DRAWN WITH  LIKELIEST",
        "'The'    11   -0.500      -0.250  'The' -0.500",
        "b'\\xf0'  12   -1.500       0.000  b'\\xf0' -1.500",
    ]


def test_the_document_says_the_whole_sampler(mtplx) -> None:
    sampler = mtplx("generate", "hi", "--json").events[-1]["sampler"]
    assert set(sampler) >= {*(name for name, _ in FLAGS.values()), "logit_bias", "reproducible"}
    assert json.dumps(sampler)


def test_stats_name_the_rule_and_what_is_wrong(mtplx, daemon: FakeDaemon) -> None:
    def degraded(*_: object) -> Any:
        found = final()
        found.final.stats.degraded.append("head_collapsed")
        found.final.stats.exactness = "near-tie"
        yield found

    daemon.answer = degraded
    line = mtplx("generate", "hi", "--stats").err
    assert " · rule token · " in line
    assert line.endswith(" · near-tie · degraded: head_collapsed\n")
