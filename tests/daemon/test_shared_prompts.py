"""Prompts that begin alike, sent to a real daemon: read once, answered as alone, counted, and gone with their model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client
from mtplx_client.events import Reply
from support.daemon_process import DaemonProcess, running_daemon, short_folder

SHARED = "Once upon a time there was a house at the end of the road. " * 12


@pytest.fixture
def daemon() -> Iterator[DaemonProcess]:
    with short_folder() as folder, running_daemon(folder / "home") as process:
        yield process


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[Client]:
    with Client(socket=daemon.socket) as connected:
        yield connected


def answer(client: Client, model: Path, prompt: str, **options: Any) -> Reply:
    settings: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "ignore_eos": True, "depth": 2, **options}
    return client.complete(prompt, model=str(model), force=True, raw=True, **settings)


def test_a_prompt_sent_again_reads_one_token_and_says_the_same(client: Client, tiny: Path) -> None:
    first, again, other = (answer(client, tiny, SHARED, depth=depth) for depth in (2, 2, 0))
    assert first.usage.cached_tokens == 0
    assert again.usage.cached_tokens == other.usage.cached_tokens == first.usage.prompt_tokens - 1
    assert again.tokens == other.tokens == first.tokens
    kept = client.status().engine.prefixes
    assert (kept.hits, kept.misses) == (2, 1)
    assert 0 < kept.bytes <= kept.limit == 512 << 20
    assert kept.entries >= first.usage.prompt_tokens // 64


def test_a_first_text_is_repeated_after_others_went_on_from_its_beginning(client: Client, tiny: Path) -> None:
    first = answer(client, tiny, SHARED + "The door")
    others = [answer(client, tiny, SHARED + ending) for ending in ("A window", "Nobody", "And then it")]
    assert all(reply.usage.cached_tokens > 0 for reply in others)
    assert answer(client, tiny, SHARED + "The door").tokens == first.tokens
    client.unload(str(tiny))
    assert client.status().engine.prefixes.bytes == 0
    cold = answer(client, tiny, SHARED + "Nobody", store="off")
    assert cold.usage.cached_tokens == 0
    assert cold.tokens == others[1].tokens


def test_a_reproducible_text_is_the_same_from_whole_blocks_as_from_nothing(
    client: Client, tiny: Path
) -> None:
    sampled: dict[str, Any] = {"temperature": 0.8, "seed": 5, "reproducible": True}
    replies = [answer(client, tiny, SHARED, depth=depth, **sampled) for depth in (1, 1, 0, 3)]
    assert [reply.usage.cached_tokens % 64 for reply in replies] == [0] * 4
    assert [reply.usage.cached_tokens > 0 for reply in replies] == [False, True, True, True]
    assert len({tuple(reply.tokens) for reply in replies}) == 1


@pytest.fixture
def keeping_nothing() -> Iterator[DaemonProcess]:
    with short_folder() as folder:
        home = folder / "home"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text('prefix_cache = "0"\nstore = "off"\n', encoding="utf-8")
        with running_daemon(home) as process:
            yield process


def test_with_nothing_to_keep_it_in_nothing_is_kept(keeping_nothing: DaemonProcess, tiny: Path) -> None:
    with Client(socket=keeping_nothing.socket) as client:
        replies = [answer(client, tiny, SHARED) for _ in range(2)]
        assert [reply.usage.cached_tokens for reply in replies] == [0, 0]
        assert replies[0].tokens == replies[1].tokens
        assert client.status().engine.prefixes.entries == 0
