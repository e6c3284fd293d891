"""Rounds and chunks take turns, prompts by their length but never for ever, batches by the time they were given."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.scheduling.turns import (
    CHUNK_ROUNDS,
    CHUNK_S,
    OVERTAKEN,
    UNKNOWN_ROUND_S,
    BatchView,
    Call,
    Chunk,
    PrefillView,
    Round,
    Turn,
    Turns,
    chunk_seconds,
)

BATCH = [BatchView("m", 0.1)]


def prompt(name: str, remaining: int, since: float = 0.0, background: bool = False) -> PrefillView:
    return PrefillView(name, remaining, since, background)


def names(turns: list[Turn | None]) -> list[str]:
    return [type(turn).__name__ for turn in turns]


def test_nothing_pending_is_no_turn() -> None:
    assert Turns().choose([], []) is None


def test_a_stream_waits_for_one_chunk_and_a_prompt_for_one_round() -> None:
    turns = Turns()
    chosen = [turns.choose([prompt("a", 4000), prompt("b", 3000)], BATCH) for _ in range(6)]
    assert names(chosen) == ["Chunk", "Round"] * 3


def test_without_streams_prompts_have_every_turn() -> None:
    turns = Turns()
    assert names([turns.choose([prompt("a", 4000)], []) for _ in range(3)]) == ["Chunk"] * 3


def test_a_chunk_lasts_as_long_as_the_streams_beside_it_allow() -> None:
    assert chunk_seconds([]) == CHUNK_S
    assert chunk_seconds([BatchView("m", 0.1)]) == pytest.approx(0.09)
    assert chunk_seconds([BatchView("m", 0.1), BatchView("n", 0.02)]) == pytest.approx(0.018)
    assert chunk_seconds([BatchView("m", 3.0)]) == CHUNK_S
    assert chunk_seconds([BatchView("m", None)]) == CHUNK_ROUNDS * UNKNOWN_ROUND_S
    turn = Turns().choose([prompt("a", 10)], BATCH)
    assert turn == Chunk("a", chunk_seconds(BATCH), waited_for=True)
    assert Turns().choose([prompt("a", 10)], []) == Chunk("a", CHUNK_S, waited_for=False)


@given(st.lists(st.floats(0.001, 5.0), min_size=1, max_size=4))
def test_the_longest_gap_of_a_stream_is_below_four_rounds(rounds: list[float]) -> None:
    seconds = chunk_seconds([BatchView(str(place), each) for place, each in enumerate(rounds)])
    assert seconds + min(rounds) <= 1.9 * min(rounds) + 1e-9


def test_what_streams_have_waited_for_is_taken_off_a_chunk() -> None:
    for waited in (0.0, 0.02, 0.04):
        turn = Turns().choose([prompt("a", 4000)], BATCH, waited_s=waited)
        assert turn == Chunk("a", chunk_seconds(BATCH) - waited, waited_for=True)
    assert Turns().choose([prompt("a", 4000)], [], waited_s=9.0) == Chunk("a", CHUNK_S)


def test_where_much_of_a_chunks_time_is_gone_the_round_comes_first() -> None:
    turns = Turns()
    assert turns.choose([prompt("a", 4000)], BATCH, waited_s=0.08) == Round("m")
    assert names([turns.choose([prompt("a", 4000)], BATCH, waited_s=0.01)]) == ["Chunk"]
    assert turns.choose([prompt("a", 4000)], BATCH, waited_s=0.01) == Round("m")
    assert turns.choose([prompt("a", 4000)], BATCH, waited_s=0.08) == Round("m")


def test_prompts_are_read_though_something_takes_time_before_every_chunk() -> None:
    turns = Turns()
    chosen = [turns.choose([prompt("a", 4000)], BATCH, waited_s=3.0) for _ in range(9)]
    assert names(chosen) == ["Round", "Chunk", "Round"] * 3
    assert [turn.seconds for turn in chosen if isinstance(turn, Chunk)] == [0.0] * 3


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    turns = Turns()
    turns.choose([prompt("long", 4000)], BATCH)
    turns.choose([prompt("long", 3500), prompt("short", 40, 1.0)], BATCH)
    assert turns.choose([prompt("long", 3500), prompt("short", 40, 1.0)], BATCH) == Chunk(
        "short", chunk_seconds(BATCH), waited_for=True
    )


def test_a_background_prompt_waits_for_interactive_ones_however_long_they_are() -> None:
    turns = Turns()
    pending = [prompt("back", 10, 1.0, background=True), prompt("front", 4000, 0.0)]
    assert turns.choose(pending, []) == Chunk("front", CHUNK_S)


@pytest.mark.parametrize("background", [False, True])
def test_a_long_prompt_comes_to_its_end_under_an_endless_stream_of_short_ones(background: bool) -> None:
    turns, left, chunks = Turns(), 40, 0
    while left and chunks < 1000:
        pending = [prompt("long", left * 100, 0.0, background), prompt(f"short{chunks}", 5, 1.0 + chunks)]
        turn = turns.choose(pending, [])
        assert isinstance(turn, Chunk)
        left -= turn.id == "long"
        chunks += 1
    assert chunks == 40 * (OVERTAKEN + 1)


def test_of_prompts_as_long_the_one_that_came_first_is_read_first() -> None:
    assert Turns().choose([prompt("late", 40, 2.0), prompt("early", 40, 1.0)], []) == Chunk("early", CHUNK_S)


def test_once_the_first_had_its_turn_it_lets_as_many_ahead_again() -> None:
    turns = Turns()
    pending = [prompt("long", 900, 0.0), prompt("short", 5, 1.0)]
    chosen = [turns.choose(pending, []) for _ in range(2 * OVERTAKEN + 2)]
    expected = ["short"] * OVERTAKEN + ["long"]
    assert [turn.id for turn in chosen if isinstance(turn, Chunk)] == expected * 2


def test_the_turn_of_the_first_does_not_pass_to_the_next_when_it_is_done() -> None:
    turns = Turns()
    for number in range(OVERTAKEN):
        turns.choose([prompt("long", 900, 0.0), prompt(f"s{number}", 5, 2.0)], [])
    assert turns.choose([prompt("other", 800, 1.0), prompt("s", 5, 2.0)], []) == Chunk("s", CHUNK_S)


def played(turns: Turns, seconds: dict[str, float], rounds: int) -> Counter[str]:
    time: Counter[str] = Counter(dict.fromkeys(seconds, 0))
    for _ in range(rounds):
        turn = turns.choose([], [BatchView(name, each) for name, each in seconds.items()])
        assert isinstance(turn, Round)
        turns.spent(turn.id, seconds[turn.id])
        time[turn.id] += seconds[turn.id]  # type: ignore[assignment]
    return time


def test_batches_share_time_not_rounds() -> None:
    time = played(Turns(), {"large": 0.4, "small": 0.1, "alone": 0.2}, 300)
    assert max(time.values()) - min(time.values()) <= 0.4 + 1e-9


def test_a_batch_that_comes_later_starts_level() -> None:
    turns = Turns()
    played(turns, {"first": 0.1}, 1000)
    time = played(turns, {"first": 0.1, "second": 0.1}, 10)
    assert time["first"] == pytest.approx(time["second"])


def test_rows_that_play_alone_share_time_with_a_models_rows() -> None:
    time = played(Turns(), {"request a": 0.3, "request b": 0.05, "model": 0.1}, 300)
    assert max(time.values()) - min(time.values()) <= 0.3 + 1e-9


def test_a_batch_that_comes_later_owes_nothing_and_is_owed_nothing() -> None:
    turns = Turns()
    played(turns, {"slow": 10.0}, 1)
    time = played(turns, {"slow": 0.1, "new": 0.1}, 20)
    assert time["slow"] == pytest.approx(time["new"])
    turns = Turns()
    both = {"slow": 5.0, "quick": 0.1}
    assert +played(turns, both, 2) == both
    assert +played(turns, {**both, "new": 0.1}, 1) == {"quick": 0.1}
    assert +played(turns, {**both, "new": 0.1}, 1) == {"new": 0.1}


def test_a_batch_that_was_gone_comes_back_level_whatever_it_had_before() -> None:
    turns = Turns()
    played(turns, {"first": 0.1, "second": 0.1}, 10)
    turns.choose([], [BatchView("first"), BatchView("second")])
    turns.spent("second", 50.0)
    played(turns, {"first": 0.1}, 5)
    turns.spent("second", 50.0)  # its last round is told of late
    time = played(turns, {"first": 0.1, "second": 0.1}, 10)
    assert time["first"] == pytest.approx(time["second"])


def test_calls_go_first_but_streams_and_prompts_keep_turns_of_their_own() -> None:
    turns = Turns()
    chosen = [turns.choose([prompt("a", 4000)], BATCH, calls=5) for _ in range(8)]
    assert names(chosen) == ["Call", "Chunk", "Call", "Round"] * 2
    assert names([turns.choose([], [], calls=2) for _ in range(2)]) == ["Call", "Call"]


events = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 1), st.floats(0.01, 1.0)),
    max_size=60,
)


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(events)
def test_what_is_pending_is_never_passed_over_for_long(
    script: list[tuple[int, int, int, float]],
) -> None:
    turns = Turns()
    since_round = since_chunk = 0
    for prompts, batches, calls, seconds in script:
        pending = [prompt(str(place), 100 * place + 5, float(place)) for place in range(prompts)]
        playing = [BatchView(str(place), seconds) for place in range(batches)]
        turn = turns.choose(pending, playing, calls)
        if turn is None:
            assert prompts + batches + calls == 0
        assert isinstance(turn, Call) <= bool(calls)
        since_round = 0 if isinstance(turn, Round) or not batches else since_round + 1
        since_chunk = 0 if isinstance(turn, Chunk) or not prompts else since_chunk + 1
        assert since_round <= 3  # a call, a chunk, a call
        assert since_chunk <= 3
        if isinstance(turn, Round):
            turns.spent(turn.id, seconds)
