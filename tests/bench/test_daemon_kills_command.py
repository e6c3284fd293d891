"""Two kills of a daemon under load through the command that does the full count, and what it calls lost or wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mtplxd.engine.blocks import PASSES, RESTORES

BENCH = Path(__file__).parent
LIMIT_S = 300
QUESTIONS, ANSWERS = ("one", "two", "three"), [[1, 2], [3], [4, 5]]


def test_two_kills_lose_nothing_and_change_no_answer(tmp_path: Path) -> None:
    options = ["--kills", "2", "--clients", "2", "--names", "mimo", "--families", "1", "--out", str(tmp_path)]
    command = [sys.executable, str(BENCH / "daemon_kills.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "daemon_kills.json").read_text())
    assert (found["faults"], found["first_fault"]) == (0, "none")
    assert found["kills"] >= 2
    assert found["acknowledged_blocks"] > 0
    assert all(found["samples"][f"kill {number}"]["witness_tokens"] > 0 for number in range(2))
    assert not [*tmp_path.glob("*.partial.jsonl")]


def book_of(turns: int, *, touched: bool = True, removing: bool = False, removed: bool = False) -> Any:
    from branching import Talk
    from cold_texts import ColdTalk
    from kill_load import Book, Conversation

    talk = ColdTalk(Talk(QUESTIONS), ANSWERS)
    book = Book(sessions={"s": Conversation(talk, None, turns, removing, removed)})  # type: ignore[arg-type]
    if touched:
        book.touched.add("s")
    return book


def daemon_with(turns: int, *, answers: list[list[int]] = ANSWERS, missing: int = 0) -> Any:
    """A client of a daemon that has so many turns of the session."""
    said = [
        message
        for question, answer in zip(QUESTIONS[:turns], answers, strict=False)
        for message in (
            SimpleNamespace(role="user", content=question, tokens=()),
            SimpleNamespace(role="assistant", content="", tokens=tuple(answer)),
        )
    ]
    shown = SimpleNamespace(messages=said[: len(said) - missing], turns=[None] * turns)
    return SimpleNamespace(
        sessions=lambda: [SimpleNamespace(name="s", turns=turns)] if turns else [],
        session=lambda _: shown,
    )


@pytest.mark.parametrize(
    ("grades", "count"),
    [
        ([], 0),
        ([[RESTORES, RESTORES]], 1),
        ([[PASSES, RESTORES]], 0),
        ([[RESTORES, PASSES], [RESTORES, RESTORES], [PASSES, RESTORES]], 2),
        ([[RESTORES + 1, RESTORES]] * 3, 3),
    ],
)
def test_a_row_stands_behind_the_last_block_that_has_a_state(grades: list[list[int]], count: int) -> None:
    from kill_looks import behind

    assert behind(grades) == count


@pytest.mark.parametrize(
    ("book", "client", "wrong"),
    [
        (lambda: book_of(2), lambda: daemon_with(2), ""),
        (lambda: book_of(2), lambda: daemon_with(3), ""),  # the third was kept, and nobody was told
        (lambda: book_of(2), lambda: daemon_with(1), "1 turns of 2"),
        (lambda: book_of(1), lambda: daemon_with(3), "3 turns of 1"),
        (lambda: book_of(2), lambda: daemon_with(0), "0 turns of 2"),
        (lambda: book_of(2, touched=False), lambda: daemon_with(3), "3 turns of 2"),
        (lambda: book_of(2), lambda: daemon_with(2, answers=[[1, 2], [9]]), "other answers"),
        (lambda: book_of(2), lambda: daemon_with(2, missing=1), "3 messages"),
        (lambda: book_of(2, removing=True), lambda: daemon_with(0), ""),
        (lambda: book_of(2, removing=True), lambda: daemon_with(2), ""),  # killed before it was removed
        (lambda: book_of(2, removing=True), lambda: daemon_with(1), "1 turns of 2"),
        (lambda: book_of(2, removing=True, removed=True), lambda: daemon_with(0), ""),
        (lambda: book_of(2, removing=True, removed=True), lambda: daemon_with(2), "there again"),
    ],
)
def test_a_session_has_what_was_acknowledged_and_at_most_one_turn_more(
    book: Callable[[], Any], client: Callable[[], Any], wrong: str
) -> None:
    from kill_looks import look_at_sessions

    noted = book()
    found = look_at_sessions(client(), noted)
    assert (wrong in found) if wrong else not found
    if not wrong:
        assert not noted.touched


def test_a_session_whose_removal_was_cut_off_either_stands_or_is_gone_for_good() -> None:
    from kill_looks import look_at_sessions

    standing, gone = book_of(2, removing=True), book_of(2, removing=True)
    assert not look_at_sessions(daemon_with(2), standing)
    assert not standing.sessions["s"].removing
    assert not look_at_sessions(daemon_with(2), standing)
    assert not look_at_sessions(daemon_with(0), gone)
    assert "there again" in look_at_sessions(daemon_with(2), gone)


def test_what_was_kept_beyond_is_expected_from_then_on() -> None:
    from kill_looks import look_at_sessions

    book = book_of(1)
    assert look_at_sessions(daemon_with(2), book) == ""
    assert look_at_sessions(daemon_with(1), book) == "session s has 1 turns of 2 acknowledged ones"


def store_of(
    home: Path, names: list[str], *, state: str = "on", bad: int = 0, known: int | None = None
) -> Any:
    folder = home / "store" / "blocks" / "aa"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(b"")
    blocks = len([name for name in names if name.endswith(".blk")]) if known is None else known
    stats = SimpleNamespace(state=state, reason="", quarantined=0, blocks=blocks)
    verified = SimpleNamespace(bad=bad, blocks=blocks)
    return SimpleNamespace(cache_stats=lambda: stats, cache_verify=lambda: verified)


@pytest.mark.parametrize(
    ("names", "words", "wrong"),
    [
        (["a.blk", "b.blk"], {}, ""),
        (["a.blk"], {}, "1 of 2 acknowledged blocks are lost"),
        (["a.blk", "b.blk", "c.blk"], {}, ""),
        (["a.blk", "b.blk"], {"bad": 1}, "do not verify"),
        (["a.blk", "b.blk"], {"state": "degraded"}, "opened degraded"),
        (["a.blk", "b.blk", ".c.tmp"], {}, "unfinished"),
        (["a.blk", "b.blk"], {"known": 1}, "1 blocks of 2 files"),
    ],
)
def test_the_store_has_the_blocks_that_were_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], words: dict[str, Any], wrong: str
) -> None:
    import kill_looks

    monkeypatch.setattr(kill_looks, "LOOKS", 1)
    folder = tmp_path / "store" / "blocks" / "aa"
    had = kill_looks.Acknowledged(blocks={folder / "a.blk", folder / "b.blk"}, whole=True)
    found = kill_looks.look_at_store(store_of(tmp_path, names, **words), tmp_path, had)
    assert (wrong in found) if wrong else not found


def test_what_is_evicted_is_not_lost(tmp_path: Path) -> None:
    import kill_looks

    had = kill_looks.Acknowledged(blocks={tmp_path / "gone.blk"}, whole=False)
    assert kill_looks.look_at_store(store_of(tmp_path, ["a.blk"]), tmp_path, had) == ""


def test_prompts_of_a_family_begin_alike_and_fit_beside_their_answers() -> None:
    from branching import LONGEST, grow

    ids = [at % 251 for at in range(1700)]
    found = grow(ids, 4, 8)
    assert found == grow(ids, 4, 8)
    assert len(found) == 32
    assert {branch.family for branch in found} == set(range(4))
    assert max(len(branch.tokens) + branch.options["max_tokens"] for branch in found) <= 512
    assert any(branch.exact for branch in found)
    for branch in found:
        trunk = found[8 * branch.family]
        assert len(trunk.tokens) == LONGEST
        assert branch.tokens[:8] == trunk.tokens[:8]


def test_only_clear_texts_are_compared() -> None:
    from cold_texts import is_clear

    def entry(gap: float) -> Any:
        return SimpleNamespace(top=(SimpleNamespace(logprob=-0.5), SimpleNamespace(logprob=-0.5 - gap)))

    assert is_clear([entry(0.5), entry(0.01)])
    assert not is_clear([entry(0.5), entry(1e-4)])
