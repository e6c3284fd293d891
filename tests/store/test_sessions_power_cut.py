"""A power cut leaves of the journal what was synced and any part of what came after: all acknowledged turns are there.

The states are made from a real journal: whole up to a commit that returned, then cut, torn or overwritten with what a
disk may leave there.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mtplxd.store.sessions import Sessions
from support.talking import say

TURNS = 12
PIECE = 512


@dataclass(frozen=True)
class Recorded:
    """Files as they were after each commit: `sizes[k]` are the journal's bytes once k turns were acknowledged."""

    file: bytes
    journal: bytes
    sizes: list[int]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    path = tmp_path_factory.mktemp("recorded") / "sessions.db"
    sessions = Sessions(path)
    journal = path.with_name("sessions.db-wal")
    sizes = []
    for number in range(TURNS):
        say(sessions, "work", f"question {number} " + "q" * (300 * number), "a" * 700)
        sizes.append(journal.stat().st_size)
    found = Recorded(path.read_bytes(), journal.read_bytes(), sizes)
    sessions.close()
    return found


def states(recorded: Recorded) -> Iterator[tuple[int, bytes]]:
    """Acknowledged turns, and a journal that a power cut behind them may leave."""
    rng = random.Random(7)
    for turns, size in enumerate(recorded.sizes, 1):
        following = recorded.sizes[turns] if turns < TURNS else size
        whole, later = recorded.journal[:size], recorded.journal[size:following]
        yield turns, whole
        for length in {1, 31, 32, len(later) // 2, max(0, len(later) - 1)}:
            yield turns, whole + later[:length]
        pieces = [later[at : at + PIECE] for at in range(0, len(later), PIECE)]
        for _ in range(2):
            lost = [piece if rng.random() < 0.5 else bytes(len(piece)) for piece in pieces]
            yield turns, whole + b"".join(lost)
            torn = [piece if rng.random() < 0.7 else rng.randbytes(len(piece)) for piece in pieces]
            yield turns, whole + b"".join(torn)


def test_every_state_opens_with_all_that_was_acknowledged(recorded: Recorded, tmp_path: Path) -> None:
    count = 0
    for turns, journal in states(recorded):
        folder = tmp_path / "state"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "sessions.db").write_bytes(recorded.file)
        (folder / "sessions.db-wal").write_bytes(journal)
        sessions = Sessions(folder / "sessions.db")
        found = sessions.read("work")
        assert found is not None
        assert turns <= found.summary.turns <= turns + 1
        assert len(found.messages) == 2 * found.summary.turns
        assert found.chain == tuple(map(ord, "".join(message.content for message in found.messages)))
        assert sessions.counts.reason == ""
        assert say(sessions, "work", "more", "b") == found.summary.turns + 1
        sessions.close()
        count += 1
    assert count > 7 * TURNS


def test_a_journal_that_lost_what_was_synced_loses_turns(recorded: Recorded, tmp_path: Path) -> None:
    """What the test above would miss if commits were not in the journal by then."""
    (tmp_path / "sessions.db").write_bytes(recorded.file)
    (tmp_path / "sessions.db-wal").write_bytes(recorded.journal[: recorded.sizes[5] - PIECE])
    found = Sessions(tmp_path / "sessions.db").read("work")
    assert found is not None
    assert found.summary.turns == 5
