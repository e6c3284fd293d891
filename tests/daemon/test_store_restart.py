"""What a daemon read and said, the next one on the same home need not read again: stopped, killed, or keeping none."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client
from mtplx_client.events import Reply
from support.daemon_process import DaemonProcess, running_daemon, short_folder
from support.waiting import until

PROMPT = "Once upon a time there was a house at the end of the road. " * 12


@pytest.fixture
def home() -> Iterator[Path]:
    with short_folder() as folder:
        made = folder / "home"
        made.mkdir(mode=0o700)
        (made / "config.toml").write_text('store_free_floor = "0"\nstore_block = 16\n', encoding="utf-8")
        yield made


def answer(client: Client, model: Path, prompt: str, **options: Any) -> Reply:
    settings: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "ignore_eos": True, "depth": 2, **options}
    return client.complete(prompt, model=str(model), force=True, raw=True, **settings)


def ask(home: Path, model: Path, prompt: str, **options: Any) -> Reply:
    """One daemon's whole life."""
    with running_daemon(home) as daemon:
        with Client(socket=daemon.socket) as client:
            reply = answer(client, model, prompt, **options)
        assert daemon.stop()[0] == 0
        return reply


def blocks_of(reply: Reply) -> int:
    """How many files: of each block of prompt and answer, and of the two tails, the body's part and the head's."""
    prompt, text = (
        reply.usage.prompt_tokens - 1,
        reply.usage.prompt_tokens + reply.usage.completion_tokens - 1,
    )
    assert prompt % 16
    assert text % 16
    return 2 * (text // 16 + 1 + 1)


def test_the_next_daemon_reads_the_last_token_alone_and_says_the_same(home: Path, tiny: Path) -> None:
    first, second, plain = (ask(home, tiny, PROMPT, depth=depth) for depth in (2, 2, 0))
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens == plain.usage.cached_tokens == first.usage.prompt_tokens - 1
    assert first.stats.restore_s == 0.0
    assert 0.0 < second.stats.restore_s <= second.stats.prefill_s
    assert second.tokens == plain.tokens == first.tokens
    assert second.stats.acceptance_by_position == first.stats.acceptance_by_position


def test_a_reproducible_text_is_the_same_in_the_next_daemon(home: Path, tiny: Path) -> None:
    sampled: dict[str, Any] = {"temperature": 0.8, "seed": 5, "reproducible": True}
    replies = [ask(home, tiny, PROMPT, depth=depth, **sampled) for depth in (1, 3, 0)]
    assert [reply.usage.cached_tokens % 64 for reply in replies] == [0] * 3
    assert [reply.usage.cached_tokens > 0 for reply in replies] == [False, True, True]
    assert len({tuple(reply.tokens) for reply in replies}) == 1


def test_after_a_model_left_memory_its_prompts_come_from_the_disk(home: Path, tiny: Path) -> None:
    with running_daemon(home) as daemon, Client(socket=daemon.socket) as client:
        first = answer(client, tiny, PROMPT)
        client.unload(str(tiny))
        until(lambda: client.cache_stats().waiting == 0)
        again = answer(client, tiny, PROMPT)
        assert again.tokens == first.tokens
        assert again.usage.cached_tokens == first.usage.prompt_tokens - 1
        assert client.cache_stats().tokens_from_disk == first.usage.prompt_tokens - 1


def test_an_idle_daemon_has_all_of_it_on_disk_before_it_is_killed(home: Path, tiny: Path) -> None:
    daemon = DaemonProcess(home).start()
    with Client(socket=daemon.socket) as client:
        first = answer(client, tiny, PROMPT)
        until(lambda: client.cache_stats().blocks >= blocks_of(first) and not client.cache_stats().waiting)
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    again = ask(home, tiny, PROMPT)
    assert again.usage.cached_tokens == first.usage.prompt_tokens - 1
    assert again.tokens == first.tokens


def test_with_the_store_off_nothing_is_there_afterwards(home: Path, tiny: Path) -> None:
    (home / "config.toml").write_text('store = "off"\n', encoding="utf-8")
    replies = [ask(home, tiny, PROMPT) for _ in range(2)]
    assert [reply.usage.cached_tokens for reply in replies] == [0, 0]
    assert replies[0].tokens == replies[1].tokens
    assert not [path for path in (home / "store").rglob("*") if path.suffix == ".blk"]
