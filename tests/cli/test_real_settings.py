"""Settings through a real daemon with a tiny pack: one seed is one text on every way in, at every depth."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import AsyncClient, Client, Final, Logprobs, Reply, Text
from mtplx_client.errors import InvalidArgument
from mtplxd.packs.manifest import Manifest, write_manifest
from support.daemon_process import DaemonProcess, clean_environment, running_daemon, short_folder
from support.tiny_pack import VOCAB, make_tiny_pack

RECOMMENDED = {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.1}
WISH: dict[str, Any] = {
    "seed": 1234,
    "temperature": 0.9,
    "top_k": 50,
    "presence_penalty": 0.25,
    "frequency_penalty": 0.125,
    "repetition_penalty": 1.05,
    "logit_bias": {100: 1.5, 101: -5.0},
    "max_tokens": 24,
    "ignore_eos": True,
    "logprobs": 2,
}
FLAGS = ["--logit-bias", "100:1.5", "--logit-bias", "101:-5", "--ignore-eos"] + [
    word
    for name in ("seed", "temperature", "top_k", "presence_penalty", "frequency_penalty", "repetition_penalty",
                 "max_tokens", "logprobs")
    for word in (f"--{name.replace('_', '-')}", str(WISH[name]))
]  # fmt: skip
PROMPT = "the other thing"


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with short_folder() as home:
        folder = make_tiny_pack(home / "packs" / "tiny")
        ours = {"draft_sampler": {"temperature": 0.5}}
        write_manifest(folder, Manifest({"sampler": RECOMMENDED, "mtplxd": ours}))
        (folder / "generation_config.json").write_text(
            json.dumps({"eos_token_id": 2, "temperature": 0.3, "min_p": 0.01})
        )
        with running_daemon(home, "--preload", "tiny") as running:
            yield running


@pytest.fixture(scope="module")
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(daemon.socket) as connected:
        yield connected


def complete(client: Client, **options: Any) -> Reply:
    return client.complete(PROMPT, model="tiny", force=True, **options)


def mtplx(home: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mtplx_client", "generate", PROMPT, "--model", "tiny", "--force", *words],
        env=clean_environment(home),
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def reference(client: Client) -> Reply:
    """The wish decoded plainly."""
    return complete(client, depth=0, **WISH)


def test_a_seed_is_one_text_on_every_way_in(daemon: DaemonProcess, client: Client, reference: Reply) -> None:
    events = list(client.generate(PROMPT, model="tiny", force=True, depth=2, **WISH))
    streamed = [token for event in events if isinstance(event, Text) for token in event.tokens]
    assert streamed == reference.tokens
    assert "".join(event.text for event in events if isinstance(event, Text)) == reference.text

    async def complete_async() -> Reply:
        async with AsyncClient(daemon.socket) as other:
            return await other.complete(PROMPT, model="tiny", force=True, depth=1, **WISH)

    assert asyncio.run(complete_async()).tokens == reference.tokens
    document = json.loads(mtplx(daemon.home, *FLAGS, "--depth", "3", "--json").splitlines()[-1])
    assert document["tokens"] == reference.tokens
    assert (document["sampler"]["acceptance"], document["sampler"]["seed"]) == ("coupled", 1234)
    assert mtplx(daemon.home, *FLAGS, "--depth", "2").removesuffix("\n") == reference.text.removesuffix("\n")


def test_another_seed_is_another_text(client: Client, reference: Reply) -> None:
    assert complete(client, depth=0, **{**WISH, "seed": 1235}).tokens != reference.tokens


@pytest.mark.parametrize(
    "draft", [{}, {"draft_temperature": 0.0}, {"draft_temperature": 3.0, "draft_top_k": 4}]
)
def test_how_drafts_are_drawn_changes_no_text(
    client: Client, reference: Reply, draft: dict[str, Any]
) -> None:
    reply = complete(client, depth=2, **WISH, **draft)
    assert reply.tokens == reference.tokens
    assert reply.stats.drafted > 0


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_a_reproducible_text_is_one_at_every_depth(client: Client, depth: int) -> None:
    reply = complete(client, depth=depth, **{**WISH, "reproducible": True})
    assert reply.tokens == complete(client, depth=0, **{**WISH, "reproducible": True}).tokens
    assert reply.sampler.reproducible
    assert reply.stats.exactness in ("exact", "near-tie")


def test_a_reproducible_text_outlives_its_daemon() -> None:
    texts = []
    with short_folder() as home:
        make_tiny_pack(home / "packs" / "tiny")
        for depth in (3, 1):
            with running_daemon(home) as running, Client(running.socket) as connected:
                if depth == 1:
                    complete(connected, max_tokens=5, temperature=0.7)
                reply = complete(connected, depth=depth, **{**WISH, "reproducible": True})
                texts.append((reply.tokens, reply.logprobs if reply.stats.exactness == "exact" else None))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("depth", [0, 2])
def test_logprobs_are_of_the_text_whatever_was_drafted(client: Client, reference: Reply, depth: int) -> None:
    wish = {**WISH, "law_logprobs": True}
    events = list(client.generate(PROMPT, model="tiny", force=True, depth=depth, **wish))
    for before, after in pairwise(events):
        if isinstance(before, Logprobs):
            assert isinstance(after, Text)
            assert [entry.token for entry in before.tokens] == list(after.tokens)
    entries = [entry for event in events if isinstance(event, Logprobs) for entry in event.tokens]
    assert reference.logprobs is not None
    assert [entry.token for entry in entries] == reference.tokens
    for entry, plain in zip(entries, reference.logprobs, strict=True):
        assert entry.logprob == pytest.approx(plain.logprob, abs=1e-3)
        assert [top.token for top in entry.top] == [top.token for top in plain.top]
        assert entry.top[0].logprob >= entry.top[1].logprob
        assert entry.law is not None
        assert entry.law <= 0
        assert plain.law is None
    final = events[-1]
    assert isinstance(final, Final)
    assert final.usage.completion_tokens == len(entries)


def test_the_bytes_of_the_tokens_are_the_text(reference: Reply) -> None:
    assert reference.logprobs is not None
    special = {0, 1, 2}
    said = b"".join(entry.text for entry in reference.logprobs if entry.token not in special)
    assert said.decode(errors="replace") == reference.text


def test_a_reply_that_asked_for_no_alternatives_has_its_own_logprobs_alone(client: Client) -> None:
    reply = complete(client, **{**WISH, "logprobs": 0})
    assert reply.logprobs is not None
    assert len(reply.logprobs) == len(reply.tokens)
    assert all(entry.top == () for entry in reply.logprobs)
    assert complete(client, **{**WISH, "logprobs": None}).logprobs is None


def test_defaults_come_from_the_contract_then_the_generation_config_and_the_request_wins(
    client: Client,
) -> None:
    sampler = complete(client, max_tokens=2).sampler
    assert (sampler.temperature, sampler.top_p, sampler.min_p) == (0.8, 0.9, 0.01)
    assert (sampler.repetition_penalty, sampler.draft_temperature) == (1.1, 0.5)
    assert (sampler.top_k, sampler.presence_penalty, sampler.frequency_penalty) == (0, 0.0, 0.0)
    asked = complete(
        client, max_tokens=2, temperature=1.0, top_p=1.0, min_p=0.0, repetition_penalty=1.0
    ).sampler
    assert (asked.temperature, asked.top_p, asked.min_p, asked.repetition_penalty) == (1.0, 1.0, 0.0, 1.0)
    greedy = complete(client, max_tokens=2, temperature=0).sampler
    assert (greedy.acceptance, greedy.draft_temperature) == ("greedy", None)


def test_without_a_seed_the_rule_is_the_default_and_the_seed_that_was_drawn_says_the_same_again(
    client: Client,
) -> None:
    first = complete(client, max_tokens=16, depth=2)
    assert first.sampler.acceptance in ("token", "block")
    again = complete(
        client, max_tokens=16, depth=2, seed=first.sampler.seed, acceptance=first.sampler.acceptance
    )
    assert again.tokens == first.tokens


def test_greedy_text_with_penalties_and_bias_is_one_at_every_depth(client: Client) -> None:
    wish = {**WISH, "temperature": 0, "seed": None}
    texts = {tuple(complete(client, depth=depth, **wish).tokens) for depth in (0, 1, 2, 3)}
    assert len(texts) == 1
    assert texts != {tuple(complete(client, depth=2, **{**wish, "logit_bias": {100: 100.0}}).tokens)}


def test_one_greedy_request_sent_twenty_times_is_one_text(client: Client) -> None:
    depths = [0, 2] * 10
    texts = {tuple(complete(client, depth=depth, temperature=0, max_tokens=12).tokens) for depth in depths}
    assert len(texts) == 1


@pytest.mark.parametrize("depth", [0, 2])
def test_a_regex_is_followed_to_its_end(client: Client, depth: int) -> None:
    reply = complete(client, regex="(yes|no), [0-9]{3}!", seed=5, depth=depth, max_tokens=60)
    assert re.fullmatch("(yes|no), [0-9]{3}!", reply.text)
    assert (reply.finish_reason, reply.stop_origin) == ("stop", "grammar")


def test_a_schema_gives_json_of_it_and_a_grammar_its_language(client: Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    schema |= {"additionalProperties": False}
    no_gaps = dict.fromkeys(
        (3 + byte for byte in b" \t\r\n"), -100.0
    )  # JSON allows endless ones between its parts
    reply = complete(client, json_schema=schema, seed=5, depth=2, max_tokens=200, logit_bias=no_gaps)
    assert isinstance(json.loads(reply.text)["a"], bool)
    reply = complete(client, grammar='start: "red" | "green"', seed=5, depth=2, max_tokens=60)
    assert reply.text in ("red", "green")


@pytest.mark.parametrize(
    ("field", "wish"),
    [
        ("logit_bias", {"logit_bias": {VOCAB: 1.0}}),
        ("logprobs", {"logprobs": 21}),
        ("law_logprobs", {"law_logprobs": True}),
        ("stop", {"stop": ""}),
        ("top_p", {"top_p": 0.0}),
        ("min_p", {"min_p": 1.5}),
        ("acceptance", {"acceptance": "typical"}),
        ("acceptance", {"acceptance": "token", "reproducible": True}),
        ("draft_temperature", {"draft_temperature": 0.5, "depth": 0}),
        ("json_schema", {"json_schema": "{"}),
        ("json_schema", {"json_schema": '{"type": "integer", "enum": ["a"]}'}),
        ("regex", {"regex": "(a"}),
        ("grammar", {"grammar": "start: missing"}),
        ("ignore_eos", {"regex": "a", "ignore_eos": True}),
    ],
)
def test_a_refusal_names_its_field_through_every_room(
    client: Client, field: str, wish: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        complete(client, **wish)
    assert refused.value.field == field
    assert "\n" not in str(refused.value)
    assert client.status().models[0].in_use == 0
