"""Many threads at one store: nobody ever reads another's numbers or half of a block, and nothing is left behind."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mtplxd.store.disk import DiskStore
from support.block_store import (
    PLENTY,
    WAIT_S,
    chain_of,
    content_of,
    keep,
    offered_of,
    open_store,
    same,
    whole,
)

LIMITS = replace(PLENTY, size=1_000_000, queue=1 << 20)
CHATS, THREADS, ROUNDS = 5, 4, 40


def at_once(work: Callable[[int], None]) -> list[BaseException]:
    """What went wrong while so many threads did it at the same time."""
    wrong: list[BaseException] = []
    begin = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            begin.wait(WAIT_S)
            work(number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    return wrong


def chat(store: DiskStore, draw: random.Random) -> None:
    """One turn: what is there of a prompt is read and judged, the rest offered."""
    number = draw.randrange(CHATS)
    length = draw.randrange(4, 160)
    chain = chain_of(range(1000 * number, 1000 * number + length))
    count = len(chain.nodes) - 1
    with store.holding(chain.nodes[1:]):
        for place in range(count):
            name = chain.name(place)
            content = store.read(name, chain.span(place))
            if content is None:
                store.offer(offered_of(chain, place, nbytes=4000))
            else:
                assert same(content, content_of(name, 4000))
        if rest := length % chain.block:
            store.offer(offered_of(chain, count, rest))


@pytest.mark.parametrize("tidies", [False, True])
def test_threads_that_read_offer_and_tidy_never_see_a_wrong_block(tmp_path: Path, tidies: bool) -> None:
    store = open_store(tmp_path / "store", LIMITS)

    def work(number: int) -> None:
        draw = random.Random(number)
        for turn in range(ROUNDS):
            if tidies and number == 0:
                chain = chain_of(range(1000 * (turn % CHATS), 1000 * (turn % CHATS) + 160))
                draw.choice(
                    [
                        store.prune,
                        store.verify,
                        lambda chain=chain: store.discard(chain.nodes[3:4]),
                        store.counts,
                    ]
                )()
            else:
                chat(store, draw)

    assert at_once(work) == []
    assert store.flush(WAIT_S)
    counts = store.counts()
    assert (counts.state, counts.quarantined, counts.faults, counts.waiting) == ("ready", 0, 0, 0)
    assert {"quarantined", "unreadable", "other tokens"} & counts.miss_reasons.keys() == set()
    assert all(entry.holds == 0 for entry in store._keeper.entries())
    assert store.verify().bad == 0
    assert store.prune() == 0
    assert (
        sum(path.stat().st_size for path in (tmp_path / "store").rglob("*") if path.is_file()) <= LIMITS.size
    )
    assert store.close(WAIT_S)


def test_a_block_offered_by_all_at_once_is_written_once(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    chain = chain_of(range(64))

    def work(_number: int) -> None:
        keep(store, [offered_of(chain, place) for place in range(8)])

    assert at_once(work) == []
    assert whole(store, chain) == 8
    assert store.counts().bytes_written == store.counts().nbytes
    store.close(WAIT_S)


def test_a_block_packed_tighter_while_it_is_read_is_the_same(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    chain = chain_of(range(64))
    keep(store, [offered_of(chain, place, nbytes=40_000) for place in range(8)])

    def work(number: int) -> None:
        if number == 0:
            assert store.recompress(lambda: True) > 0
        else:
            for _ in range(4):
                assert whole(store, chain) == 8

    assert at_once(work) == []
    assert store.counts().misses == 0
    store.close(WAIT_S)


def test_a_store_closed_under_those_who_use_it_breaks_nobody(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", LIMITS)

    def work(number: int) -> None:
        for _ in range(8):
            chat(store, random.Random(number))
        if number == 0:
            store.close(WAIT_S)

    assert at_once(work) == []
    assert store.counts().state == "closed"
    again = open_store(tmp_path / "store", LIMITS)
    assert again.verify().bad == 0
    again.close(WAIT_S)
