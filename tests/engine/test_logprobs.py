"""Log-probabilities are log-softmax of the target's raw logits, one entry a kept token, at every depth and rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mtplxd.engine import sampling
from mtplxd.engine.events import Logprobs, Text, TokenLogprob
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, DraftSampler, SamplerSettings
from mtplxd.families.load import LoadedModel
from support.listening import Listener, ask, decode
from support.reference_laws import reference_law, shaped_logits
from support.table_decoding import IDS, table_model
from support.table_matcher import TableLanguage
from support.table_model import TableHead, TableTarget

PROMPT = [5, 6, 9]
SHAPED = SamplerSettings(
    temperature=0.8,
    top_k=9,
    top_p=0.9371,
    seed=3,
    repetition_penalty=1.3,
    frequency_penalty=0.5,
    logit_bias=((4, 1.5),),
    draft=DraftSampler(temperature=1.1),
)
LANGUAGE = TableLanguage(
    moves=tuple({token: (token + state) % 3 for token in range(state, IDS, 2)} for state in range(3)),
    final=frozenset(),
    size=IDS,
)
SAMPLERS = {
    "greedy": SamplerSettings(temperature=0.0),
    "greedy, shaped": replace(SHAPED, temperature=0.0),
    **{rule: replace(SHAPED, acceptance=rule) for rule in (TOKEN, BLOCK, COUPLED)},
}

pytestmark = pytest.mark.parametrize("depth", [0, 1, 2, 3])


class Case:
    """One answer of a table model with log-probabilities."""

    def __init__(self, tiny_model: LoadedModel, depth: int, sampler: SamplerSettings, **others: Any) -> None:
        self.target = TableTarget(IDS, seed=8, spread=1.5)
        head = TableHead(self.target, range(1, IDS), seed=9, spread=1.5)
        eos = others.pop("eos", frozenset())
        model = table_model(tiny_model.tokenizer, self.target, head, eos=eos)
        self.sampler, self.grammar = sampler, others.get("grammar")
        given = {"max_tokens": 15, "logprobs": 4} | others
        self.decoder, self.listener = decode(ask(model, PROMPT, depth=depth, sampler=sampler, **given))

    @property
    def entries(self) -> list[TokenLogprob]:
        return entries_of(self.listener)

    def check(self) -> None:
        """Every entry against numpy, in the order of the tokens."""
        tokens = self.listener.tokens
        assert [entry.token for entry in self.entries] == tokens
        for place, entry in enumerate(self.entries):
            before = tuple(tokens[:place])
            logits = self.target.logits_after([*PROMPT, *before])
            expected = logits - np.log(np.exp(logits).sum())
            likeliest = np.lexsort((np.arange(IDS), -logits))[: len(entry.top)]
            assert [token for token, _ in entry.top] == likeliest.tolist()
            assert np.allclose([value for _, value in entry.top], expected[likeliest], rtol=0, atol=1e-5)
            assert entry.logprob == pytest.approx(expected[entry.token], abs=1e-5)
            state = self.grammar.state(before) if self.grammar else None
            allowed = None if self.grammar is None or state is None else set(self.grammar.moves[state])
            shaped = shaped_logits(logits, self.sampler, tuple(PROMPT), before, allowed)
            law = reference_law(shaped, self.sampler)
            assert entry.law == pytest.approx(np.log(law[entry.token]), abs=2e-5)


def entries_of(listener: Listener) -> list[TokenLogprob]:
    return [entry for event in listener.events if isinstance(event, Logprobs) for entry in event.tokens]


@pytest.mark.parametrize("masked", [False, True], ids=["no mask", "mask"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_entries_are_of_raw_logits_whatever_shapes_the_law(
    tiny_model: LoadedModel, depth: int, name: str, masked: bool
) -> None:
    case = Case(tiny_model, depth, SAMPLERS[name], grammar=LANGUAGE if masked else None)
    assert len(case.entries) == 15
    case.check()


def test_accepted_corrected_and_bonus_tokens_are_all_measured(tiny_model: LoadedModel, depth: int) -> None:
    found = [Case(tiny_model, depth, replace(SAMPLERS[TOKEN], seed=seed), max_tokens=40) for seed in range(4)]
    accepted = sum(sum(case.decoder.row.counts.accepted) for case in found)
    rounds = sum(case.decoder.row.counts.rounds for case in found)
    for case in found:
        case.check()
    assert depth == 0 or 0 < accepted < rounds * depth


def test_a_greedy_choice_is_certain(tiny_model: LoadedModel, depth: int) -> None:
    for name in ("greedy", "greedy, shaped"):
        assert {entry.law for entry in Case(tiny_model, depth, SAMPLERS[name]).entries} == {0.0}


@pytest.mark.parametrize("limit", range(1, 7))
def test_a_cut_leaves_an_entry_for_each_kept_token_and_no_other(
    tiny_model: LoadedModel, depth: int, limit: int
) -> None:
    case = Case(tiny_model, depth, SAMPLERS[BLOCK], max_tokens=limit)
    assert len(case.entries) == len(case.listener.tokens) == limit
    case.check()


def test_a_stop_token_inside_a_round_has_the_last_entry(tiny_model: LoadedModel, depth: int) -> None:
    whole = Case(tiny_model, depth, SAMPLERS[COUPLED]).listener.tokens
    for stop in whole[1:6]:
        case = Case(tiny_model, depth, SAMPLERS[COUPLED], eos=frozenset({stop}))
        assert case.listener.tokens == whole[: whole.index(stop) + 1]
        assert case.entries[-1].token == stop
        case.check()


def test_entries_come_right_before_the_text_of_their_tokens(tiny_model: LoadedModel, depth: int) -> None:
    listener = Case(tiny_model, depth, SAMPLERS[TOKEN]).listener
    said = [event for event in listener.events if isinstance(event, Logprobs | Text)]
    described: list[int] = []
    for event in said:
        if isinstance(event, Logprobs):
            described += [entry.token for entry in event.tokens]
        else:
            assert described[: len(event.tokens)] == list(event.tokens)
            described = described[len(event.tokens) :]
    assert described == []


@pytest.mark.parametrize("count", [0, 1, 20])
def test_as_many_alternatives_as_were_asked_for(tiny_model: LoadedModel, depth: int, count: int) -> None:
    case = Case(tiny_model, depth, SAMPLERS[TOKEN], logprobs=count)
    assert {len(entry.top) for entry in case.entries} == {count}
    case.check()


def test_none_are_made_where_none_were_asked_for(tiny_model: LoadedModel, depth: int) -> None:
    case = Case(tiny_model, depth, SAMPLERS[TOKEN], logprobs=None)
    assert not [event for event in case.listener.events if isinstance(event, Logprobs)]


@pytest.mark.parametrize("rule", [TOKEN, BLOCK, COUPLED])
def test_a_round_that_had_to_rank_all_is_measured_anew(
    tiny_model: LoadedModel, depth: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "CANDIDATES", 3)
    redone = []
    real = sampling._is_sound

    def watched(ranking: Any, keep: Any) -> Any:
        redone.append(ranking.all)
        return real(ranking, keep)

    monkeypatch.setattr(sampling, "_is_sound", watched)
    Case(tiny_model, depth, replace(SHAPED, top_k=0, acceptance=rule)).check()
    assert sum(redone) > 3


def test_asking_for_them_changes_no_token(tiny_model: LoadedModel, depth: int) -> None:
    for sampler in SAMPLERS.values():
        with_them, without = (Case(tiny_model, depth, sampler, logprobs=count) for count in (3, None))
        assert with_them.listener.tokens == without.listener.tokens
