"""Rounds of the engine over bodies with recurrent layers: one forward each, and the committed text's state after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from mtplxd.engine.batch import Batch
from mtplxd.engine.fixed_shape import fix_shape, is_shape_stable
from mtplxd.engine.prefill import prefill
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.round import Flight, commit, discard, land, launch
from mtplxd.engine.row import Row
from mtplxd.families.body import Body
from mtplxd.families.protocols import LayerCache
from mtplxd.families.recurrence import wrap_recurrences
from mtplxd.platform.mlx import Array, mx
from support.ragged import counted
from support.recurrent import StockRun, farthest, held, random_model, states, tokens_of
from support.scripted_model import ScriptedHead

GREEDY = SamplerSettings(temperature=0.0)
PROMPT, MADE, DEPTH = 23, 40, 3
WRONG = frozenset(PROMPT + place for place in (0, 2, 5, 6, 9, 13, 14, 20, 21, 30, 37))
"""Positions that the head gets wrong, so that every accepted length comes up."""
ROUNDING = 5e-5
"""Rounds and one whole run put products of other shapes through every layer; a wrong replay is off by far more."""


class PlacedBody(Body):
    """Taps each position's place, which is all that a scripted head reads, and counts forwards."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.forwards = 0

    def run(self, tokens: Array, cache: list[LayerCache]) -> tuple[Array, tuple[Array, ...]]:
        self.forwards += 1
        places = mx.array(cache[0].lengths)[:, None] + mx.arange(tokens.shape[1])
        hidden, _ = super().run(tokens, cache)
        return hidden, (places[..., None].astype(mx.float32),)


@pytest.fixture(scope="module", params=["qwen3_next", "nemotron_h", "kimi_linear", "falcon_h1", "lfm2"])
def pair(request: pytest.FixtureRequest) -> tuple[PlacedBody, Any]:
    """A body with wrapped layers, and the same model as mlx-lm makes it."""
    model = random_model(request.param)
    assert wrap_recurrences(model) == []
    return PlacedBody(model), random_model(request.param)


def plain_text(stock: Any) -> list[int]:
    """The prompt and what mlx-lm's own classes and caches say after it, greedily, token by token."""
    run = StockRun(stock)
    text: list[int] = tokens_of(0, PROMPT)[0].tolist()
    logits = run.logits(mx.array([text]))
    for _ in range(MADE + DEPTH + 2):
        text.append(int(mx.argmax(logits[0, -1]).item()))
        logits = run.logits(mx.array([text[-1:]]))
    return text


def open_batch(body: PlacedBody, script: Sequence[int], chunk: int = 512) -> Batch:
    head = ScriptedHead([*script, *[0] * 32], WRONG)
    row, cache = Row(list(script[:PROMPT]), GREEDY, 0), body.make_cache(1)
    batch = Batch(body, head, [row], cache, head.make_cache(1, cache))
    for _ in prefill(batch, script[:PROMPT], chunk):
        pass
    body.forwards = 0
    return batch


def start(batch: Batch, depth: int, last: Array | None = None) -> Flight:
    return launch(batch, counted([1], [0]), [depth], last)


def play(batch: Batch, depth: int) -> int:
    """One round; gives how many tokens it made."""
    flight = start(batch, depth)
    [landing] = land(batch, flight)
    commit(batch, flight, [landing], [len(landing.tokens)])
    return len(landing.tokens)


def assert_state(batch: Batch, stock: Any) -> None:
    """Every layer holds the committed text but its last token, as mlx-lm would."""
    text = batch.rows[0].tokens
    assert {layer.lengths[0] for layer in batch.cache} == {len(text) - 1}
    fresh = StockRun(stock).feed(mx.array([text[:-1]]))
    assert farthest(states(batch.cache), fresh.states) <= ROUNDING


@pytest.mark.parametrize("chunk", [512, 7])
def test_rounds_of_any_acceptance_make_the_plain_text_with_one_forward_each(
    pair: tuple[PlacedBody, Any], chunk: int
) -> None:
    body, stock = pair
    script = plain_text(stock)
    batch = open_batch(body, script, chunk)
    rounds, made = 0, set()
    while len(batch.rows[0].tokens) < PROMPT + MADE:
        made.add(play(batch, DEPTH))
        rounds += 1
        assert body.forwards == rounds
        assert_state(batch, stock)
    assert made == {1, 2, 3, 4}
    text = batch.rows[0].tokens
    assert text == script[: len(text)]


def test_a_round_at_depth_0_commits_while_its_successor_is_in_flight(pair: tuple[PlacedBody, Any]) -> None:
    body, stock = pair
    script = plain_text(stock)
    batch = open_batch(body, script)
    play(batch, DEPTH)
    flight = start(batch, 0)
    for _ in range(6):
        ahead = start(batch, 0, flight.judgement.token)
        [landing] = land(batch, flight)
        commit(batch, flight, [landing], [1], ahead=1)
        flight = ahead
    discard(batch, flight)
    assert_state(batch, stock)
    play(batch, DEPTH)
    assert_state(batch, stock)
    text = batch.rows[0].tokens
    assert text == script[: len(text)]


def test_a_round_that_keeps_nothing_is_taken_back_behind_its_discarded_successor(
    pair: tuple[PlacedBody, Any],
) -> None:
    body, stock = pair
    batch = open_batch(body, plain_text(stock))
    flight = start(batch, 0)
    ahead = start(batch, 0, flight.judgement.token)
    [landing] = land(batch, flight)
    discard(batch, ahead)
    commit(batch, flight, [landing], [0])
    assert_state(batch, stock)


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_text_that_ends_inside_a_round_has_the_state_of_the_token_that_ended_it(
    pair: tuple[PlacedBody, Any], kept: int
) -> None:
    body, stock = pair
    script = plain_text(stock)
    batch = open_batch(body, script)
    batch.head = ScriptedHead([*script, *[0] * 32])
    flight = start(batch, DEPTH)
    [landing] = land(batch, flight)
    assert landing.accepted == DEPTH
    commit(batch, flight, [landing], [kept])
    assert_state(batch, stock)


def test_a_discarded_round_leaves_the_state_it_found(pair: tuple[PlacedBody, Any]) -> None:
    body, stock = pair
    batch = open_batch(body, plain_text(stock))
    before = states(batch.cache)
    discard(batch, start(batch, DEPTH))
    assert all(now is then for now, then in zip(states(batch.cache), before, strict=True))


def test_forwards_of_one_shape_have_the_same_bits_at_every_depth(pair: tuple[PlacedBody, Any]) -> None:
    body, stock = pair
    assert is_shape_stable(body, DEPTH + 1)
    script = plain_text(stock)
    found = []
    for depth in (0, 1, DEPTH):
        batch = open_batch(body, script)
        fix_shape(batch, DEPTH + 1)
        while len(batch.rows[0].tokens) < PROMPT + MADE:
            play(batch, depth)
        while len(batch.rows[0].tokens) < PROMPT + MADE + DEPTH:
            play(batch, 0)
        assert_state(batch, stock)
        found.append((batch.rows[0].tokens, states(batch.cache)))
    for text, arrays in found[1:]:
        assert text == found[0][0]
        assert farthest(arrays, found[0][1]) == 0


def test_a_round_that_is_accepted_whole_replays_nothing(
    pair: tuple[PlacedBody, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mtplxd.families.recurrence.replays import Rerun, Tape

    body, stock = pair
    script = plain_text(stock)
    batch = open_batch(body, script)
    batch.head = ScriptedHead([*script, *[0] * 32])

    def refuse(*_: Any) -> None:
        raise AssertionError("nothing is to be replayed")

    monkeypatch.setattr(Tape, "after", refuse)
    monkeypatch.setattr(Rerun, "after", refuse)
    for _ in range(3):
        assert play(batch, DEPTH) == DEPTH + 1
    assert all(cache.replay is not None for cache in held(batch.cache))
