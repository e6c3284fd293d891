"""Wherever a round is cut, what is left behind is what plain decoding of the text leaves, and goes on as it would."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from mtplxd.engine.decode import Decoder
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, DraftSampler, SamplerSettings
from mtplxd.engine.round import commit, land, launch
from mtplxd.engine.shaping import make_shaper
from mtplxd.engine.uniforms import RoundUniforms, UniformSupply
from mtplxd.families.load import LoadedModel
from support.listening import Listener, ask, decode
from support.table_decoding import IDS, coupled_text, table_model
from support.table_matcher import LanguageMatcher, TableLanguage
from support.table_model import TableHead, TableTarget, read_slots

PROMPT = [5, 6, 9]
LONG = 30
SAMPLER = SamplerSettings(
    temperature=0.8,
    top_k=9,
    seed=3,
    repetition_penalty=1.3,
    frequency_penalty=0.25,
    logit_bias=((4, 1.5),),
    acceptance=COUPLED,
    draft=DraftSampler(temperature=1.1),
)
LANGUAGE = TableLanguage(
    moves=tuple({token: (token + state) % 3 for token in range(3 + state, IDS, 2)} for state in range(3)),
    final=frozenset(),
    size=IDS,
)
TARGET = TableTarget(IDS, seed=8, spread=1.5)

pytestmark = [
    pytest.mark.parametrize("depth", [0, 1, 2, 3]),
    pytest.mark.parametrize("grammar", [None, LANGUAGE], ids=["no mask", "mask"]),
]


class Knowing(TableHead):
    """Drafts the text it was told, but another token now and then: rounds end everywhere."""

    def __init__(self, target: TableTarget, text: list[int]) -> None:
        super().__init__(target, seed=9)
        prefixes = [[*PROMPT, *text[:place]] for place in range(len(text))]
        for place, prefix in enumerate(prefixes):
            states = [self.state_after(self.pairs_of(prefix))]
            for back in range(1, 4):
                if place >= back:
                    pairs = self.pairs_of(prefixes[place - back])
                    for token in text[place - back : place]:
                        pairs = self.extended(pairs, token)
                    states.append(self.state_after(pairs))
            wanted = text[place] if place % 5 != 4 else (text[place] + 1) % IDS
            for state in states:
                self.table[state] = 0.0
                self.table[state, wanted] = 9.0
        self._table = type(target._table)(self.table.astype("float32"))


@cache
def whole_and_head(masked: bool) -> tuple[list[int], Knowing]:
    text = coupled_text(TARGET, PROMPT, SAMPLER, LONG + 12, LANGUAGE if masked else None)
    return text, Knowing(TARGET, text)


def whole_text(grammar: Any) -> list[int]:
    return whole_and_head(grammar is not None)[0]


def answer(
    tiny_model: LoadedModel, depth: int, grammar: Any, *, eos: frozenset[int] = frozenset(), **others: Any
) -> tuple[Decoder, Listener]:
    poll = others.pop("poll", lambda: None)
    _, head = whole_and_head(grammar is not None)
    model = table_model(tiny_model.tokenizer, TARGET, head, eos=eos)
    given = {"sampler": SAMPLER, "max_tokens": LONG} | others
    request = ask(model, PROMPT, depth=depth, grammar=grammar, **given)
    return decode(request, poll=poll)


def assert_as_decoded_plainly(decoder: Decoder, *, last_is_text: bool = True) -> None:
    """Slots, pairs, counts and the matcher are functions of the committed tokens."""
    batch, row = decoder.batch, decoder.row
    assert read_slots(batch.cache[0]) == row.tokens[:-1]
    if batch.head is not None:
        pairs = batch.head.pairs_of(row.tokens)  # type: ignore[attr-defined]
        absorbed = batch.head_cache[0].lengths[0]
        assert read_slots(batch.head_cache[0]) == pairs[:absorbed]
        waiting = row.pending.tokens if row.pending else []
        assert waiting == row.tokens[absorbed + 1 :]
        if row.pending:
            states = [int(state) for (tap,) in row.pending.parts for state in tap.reshape(-1).tolist()]
            assert [state * IDS + token for state, token in zip(states, waiting, strict=True)] == pairs[
                absorbed:
            ]
    made = row.tokens[len(PROMPT) :]
    fresh = make_shaper(row.sampler, PROMPT)
    assert fresh is not None
    assert row.shaper is not None
    fresh.commit(made)
    assert row.shaper.history().tolist() == fresh.history().tolist()
    if isinstance(row.matcher, LanguageMatcher):
        assert row.matcher.consumed == (made if last_is_text else made[:-1])


def assert_goes_on(decoder: Decoder, depth: int, expected: list[int]) -> None:
    """Further rounds on what the answer left make the text it would have had."""
    batch, row, supply = decoder.batch, decoder.row, UniformSupply(SAMPLER.seed)
    while len(row.tokens) < len(PROMPT) + len(expected) - 4:
        flight = launch(batch, RoundUniforms([supply], [row.round], [len(row.tokens)]), [depth])
        [landing] = land(batch, flight)
        commit(batch, flight, [landing], [len(landing.tokens)])
        if row.matcher:
            assert all(row.matcher.advance(token) for token in landing.tokens)
    made = row.tokens[len(PROMPT) :]
    assert made == expected[: len(made)]
    assert_as_decoded_plainly(decoder)


def test_drafts_are_accepted_and_refused_on_the_way(
    tiny_model: LoadedModel, depth: int, grammar: Any
) -> None:
    decoder, listener = answer(tiny_model, depth, grammar)
    assert listener.tokens == whole_text(grammar)[:LONG]
    accepted = sum(decoder.row.counts.accepted)
    assert depth == 0 or LONG * depth / (depth + 1) / 3 < accepted < decoder.row.counts.drafted


@pytest.mark.parametrize("limit", range(1, 10))
def test_the_token_limit(tiny_model: LoadedModel, depth: int, grammar: Any, limit: int) -> None:
    whole = whole_text(grammar)
    decoder, listener = answer(tiny_model, depth, grammar, max_tokens=limit)
    assert listener.finished.stop_origin == "max_tokens"
    assert listener.tokens == whole[:limit]
    assert_as_decoded_plainly(decoder)
    assert_goes_on(decoder, depth, whole)


@pytest.mark.parametrize("place", range(1, 10))
def test_a_stop_token(tiny_model: LoadedModel, depth: int, grammar: Any, place: int) -> None:
    whole = whole_text(grammar)
    decoder, listener = answer(tiny_model, depth, grammar, eos=frozenset({whole[place]}))
    assert listener.finished.stop_origin == "eos"
    assert listener.tokens == whole[: whole.index(whole[place]) + 1]
    assert_as_decoded_plainly(decoder, last_is_text=False)
    if grammar is None:
        assert_goes_on(decoder, depth, whole)


@pytest.mark.parametrize("begin", range(8))
@pytest.mark.parametrize("length", [1, 3])
def test_a_stop_string_within_a_round_or_from_one_into_the_next(
    tiny_model: LoadedModel, depth: int, grammar: Any, begin: int, length: int
) -> None:
    whole, tokenizer = whole_text(grammar), tiny_model.tokenizer
    # Special tokens are no text.
    stop = next(text for end in range(begin + length, LONG) if (text := tokenizer.decode(whole[begin:end])))
    count = next(n for n in range(len(whole) + 1) if stop in tokenizer.decode(whole[:n]))
    decoder, listener = answer(tiny_model, depth, grammar, stop=(stop,))
    assert listener.finished.stop_origin == "stop_string"
    assert listener.tokens == whole[:count]
    assert listener.text == tokenizer.decode(whole[:count]).partition(stop)[0]
    assert_as_decoded_plainly(decoder)
    assert_goes_on(decoder, depth, whole)


@pytest.mark.parametrize("origin", ["client", "deadline"])
@pytest.mark.parametrize("polls", [2, 3, 5])
def test_a_cancel_or_a_deadline(
    tiny_model: LoadedModel, depth: int, grammar: Any, origin: str, polls: int
) -> None:
    left = [None] * polls

    def poll() -> str | None:
        return left.pop() if left else origin

    whole = whole_text(grammar)
    decoder, listener = answer(tiny_model, depth, grammar, poll=poll)
    assert (listener.finished.finish_reason, listener.finished.stop_origin) == ("cancelled", origin)
    assert 0 < len(listener.tokens) < LONG
    assert listener.tokens == whole[: len(listener.tokens)]
    assert_as_decoded_plainly(decoder)
    assert_goes_on(decoder, depth, whole)


@pytest.mark.parametrize("rule", [TOKEN, BLOCK])
def test_rules_that_draw_by_round_leave_no_more_behind(
    tiny_model: LoadedModel, depth: int, grammar: Any, rule: str
) -> None:
    sampler = replace(SAMPLER, acceptance=rule)
    for limit in range(1, 7):
        decoder, listener = answer(tiny_model, depth, grammar, sampler=sampler, max_tokens=limit)
        assert len(listener.tokens) == limit
        assert_as_decoded_plainly(decoder)
