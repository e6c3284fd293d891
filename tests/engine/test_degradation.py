"""A head that goes wrong costs its row the head, visibly, and no token; a target that goes wrong ends the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mtplxd.engine import row as rows
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, SamplerSettings
from mtplxd.engine.row import RowCounts
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import mx
from support.churn import Crowd, Spec
from support.listening import ask, decode
from support.scripted_model import scripted_model
from support.table_decoding import IDS, FailingHead, coupled_text, table_model
from support.table_model import TableHead, TableTarget

PROMPT = [5, 6, 9]
SCRIPT = [10, 11, 12, *range(40, 200)]
SAMPLERS = {
    "greedy": SamplerSettings(temperature=0.0),
    **{rule: SamplerSettings(0.9, seed=4, acceptance=rule) for rule in (TOKEN, BLOCK, COUPLED)},
}
each_rule = pytest.mark.parametrize("rule", SAMPLERS)


def answered(tiny_model: LoadedModel, head: object, target: TableTarget, depth: int, **others: Any) -> Any:
    model = table_model(tiny_model.tokenizer, target, head)
    given = {"max_tokens": 20, "ignore_eos": True} | others
    return decode(ask(model, PROMPT, depth=depth, **given))


@pytest.mark.parametrize("rule", ["greedy", COUPLED])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_numbers_that_are_none_end_a_text_before_a_token_of_their_round(
    tiny_model: LoadedModel, rule: str, depth: int, value: float
) -> None:
    target, spoiled = TableTarget(IDS, seed=8), TableTarget(IDS, seed=8)
    plain = answered(tiny_model, None, target, 0, sampler=SAMPLERS[rule])[1].tokens
    spoiled.table[spoiled.state_after([*PROMPT, *plain[:6]]), 3] = value
    spoiled._table = mx.array(spoiled.table, spoiled.dtype)
    _, listener = answered(tiny_model, TableHead(spoiled), spoiled, depth, sampler=SAMPLERS[rule])
    finished = listener.finished
    assert (finished.finish_reason, finished.stop_origin) == ("error", "non_finite")
    assert listener.tokens == plain[: len(listener.tokens)]
    assert 6 - depth <= len(listener.tokens) <= 6


@each_rule
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scripted_numbers_that_are_none_end_the_text_in_time(
    tiny_model: LoadedModel, rule: str, depth: int
) -> None:
    model = scripted_model(tiny_model.tokenizer, SCRIPT, broken=[20])
    _, listener = decode(ask(model, SCRIPT[:3], depth=depth, sampler=SAMPLERS[rule], max_tokens=60))
    assert (listener.finished.finish_reason, listener.finished.stop_origin) == ("error", "non_finite")
    whole_rounds = 17 // (depth + 1) * (depth + 1)
    assert listener.tokens == SCRIPT[3 : 3 + whole_rounds]


@each_rule
@pytest.mark.parametrize("depth", [1, 3])
def test_a_target_without_numbers_is_not_taken_for_its_head(
    tiny_model: LoadedModel, rule: str, depth: int
) -> None:
    """A head makes its numbers of the target's, and has none where there are none."""
    model = scripted_model(tiny_model.tokenizer, SCRIPT, broken=[3, 4], head_broken=[4])
    _, listener = decode(ask(model, SCRIPT[:3], depth=depth, sampler=SAMPLERS[rule], max_tokens=30))
    assert (listener.finished.stop_origin, listener.tokens) == ("non_finite", [])
    assert listener.finished.stats.degraded == ()


@each_rule
@pytest.mark.parametrize("place", [4, 5, 7, 12])
def test_a_head_without_numbers_keeps_the_drafts_before_them(
    tiny_model: LoadedModel, rule: str, place: int
) -> None:
    model = scripted_model(tiny_model.tokenizer, SCRIPT, head_broken=[place])
    decoder, listener = decode(ask(model, SCRIPT[:3], depth=3, max_tokens=30, sampler=SAMPLERS[rule]))
    assert listener.tokens == SCRIPT[3:33]
    assert listener.finished.stats.degraded == ("head_non_finite",)
    rounds, kept = divmod(place - 3, 4)
    assert listener.finished.stats.drafted == 3 * rounds + kept
    assert decoder.row.depth == 0


@each_rule
@pytest.mark.parametrize("method", ["absorb", "extend", "logits"])
@pytest.mark.parametrize("call", range(1, 6))
def test_a_head_that_raises_is_named_and_the_text_goes_on_plainly(
    tiny_model: LoadedModel, rule: str, method: str, call: int
) -> None:
    target = TableTarget(IDS, seed=8)
    decoder, listener = answered(
        tiny_model, FailingHead(TableHead(target), method, call), target, 3, sampler=SAMPLERS[rule]
    )
    assert listener.finished.stats.degraded == ("head_failed",)
    assert listener.finished.finish_reason == "length"
    assert len(listener.tokens) == 20
    assert decoder.row.depth == 0
    if rule in ("greedy", COUPLED):
        assert listener.tokens == answered(tiny_model, None, target, 0, sampler=SAMPLERS[rule])[1].tokens


@each_rule
@pytest.mark.parametrize("chunk", range(3))
def test_a_head_that_raises_while_the_prompt_is_read_is_named_and_the_text_goes_on_plainly(
    tiny_model: LoadedModel, rule: str, chunk: int
) -> None:
    target, prompt = TableTarget(IDS, seed=8), [*PROMPT, *range(30, 50)]
    asks = {"sampler": SAMPLERS[rule], "max_tokens": 20, "ignore_eos": True}
    head = FailingHead(TableHead(target), "absorb", chunk)
    model = table_model(tiny_model.tokenizer, target, head)
    decoder, listener = decode(ask(model, prompt, depth=3, **asks), chunk=8)
    stats = listener.finished.stats
    assert (stats.degraded, stats.drafted) == (("head_failed",), 0)
    assert (decoder.row.depth, listener.finished.finish_reason) == (0, "length")
    if rule in ("greedy", COUPLED):
        plain = table_model(tiny_model.tokenizer, target, None)
        assert listener.tokens == decode(ask(plain, prompt, **asks), chunk=8)[1].tokens


def test_a_body_that_fails_while_the_prompt_is_read_is_not_taken_for_its_head(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TableTarget(IDS, seed=8)

    def break_down(*_: object) -> None:
        raise RuntimeError("the body does not work")

    monkeypatch.setattr(target, "run", break_down)
    with pytest.raises(RuntimeError, match="the body does not work"):
        answered(tiny_model, TableHead(target), target, 3)


def test_a_failing_heads_reason_is_in_the_log(
    tiny_model: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    target = TableTarget(IDS, seed=8)
    answered(tiny_model, FailingHead(TableHead(target), "extend", 2), target, 3)
    assert "the head failed while drafting" in caplog.text
    assert "extend does not work" in caplog.text


@each_rule
def test_a_head_that_is_never_right_is_given_up_after_fifty_rounds(
    tiny_model: LoadedModel, rule: str
) -> None:
    script = [*SCRIPT, *[7] * 100]
    wrong = range(3, len(script))
    model = scripted_model(tiny_model.tokenizer, script, wrong=wrong, context=300)
    decoder, listener = decode(ask(model, script[:3], depth=2, max_tokens=80, sampler=SAMPLERS[rule]))
    stats = listener.finished.stats
    assert listener.tokens == script[3:83]
    assert stats.degraded == ("head_collapsed",)
    assert stats.drafted == 50 * 2
    assert decoder.row.depth == 0


@pytest.mark.parametrize("auto", [False, True])
def test_a_row_whose_depth_is_chosen_by_what_pays_is_never_given_up(auto: bool) -> None:
    """Its depth goes to 0 by itself, and comes back when the text changes; the reason is told all the same."""
    target = TableTarget(IDS, seed=8)
    crowd = Crowd(target, TableHead(target))
    row = crowd.join(Spec((5, 6, 9), SAMPLERS["greedy"], 2))
    row.auto = auto
    row.counts.recent.extend([False] * rows.COLLAPSE_ROUNDS)
    assert row.counts.collapsed
    crowd.play([0])
    assert (row.degraded, row.plain) == (["head_collapsed"], not auto)


@pytest.mark.parametrize(("right", "collapsed"), [(2, True), (3, False)])
def test_five_percent_of_fifty_rounds_is_where_a_head_has_collapsed(right: int, collapsed: bool) -> None:
    counts = RowCounts()
    for turn in range(rows.COLLAPSE_ROUNDS):
        assert not counts.collapsed
        counts.add(drafted=2, accepted=int(turn < right), decided=2)
    assert counts.collapsed == collapsed


def test_only_the_latest_fifty_rounds_count_and_rounds_without_drafts_do_not() -> None:
    counts = RowCounts()
    for _ in range(200):
        counts.add(drafted=1, accepted=1, decided=1)
    for _ in range(30):
        counts.add(drafted=0, accepted=0, decided=0)
    for turn in range(50):
        assert counts.collapsed == (turn >= 48)
        counts.add(drafted=1, accepted=0, decided=1)
    assert counts.collapsed


def test_a_head_that_is_right_now_and_then_stays(tiny_model: LoadedModel) -> None:
    script = [*SCRIPT, *[7] * 100]
    wrong = [place for place in range(3, len(script)) if place % 8]
    model = scripted_model(tiny_model.tokenizer, script, wrong=wrong, context=300)
    decoder, listener = decode(ask(model, script[:3], depth=1, max_tokens=120))
    assert listener.finished.stats.degraded == ()
    assert decoder.row.depth == 1


@pytest.mark.parametrize("gaps", [0.05, 0.5, 1.0])
def test_a_coupled_text_survives_any_head(tiny_model: LoadedModel, gaps: float) -> None:
    target = TableTarget(IDS, seed=8)
    expected = coupled_text(target, PROMPT, SAMPLERS[COUPLED], 20)
    for depth in range(5):
        head = TableHead(target, range(2, IDS), gaps=gaps)
        assert answered(tiny_model, head, target, depth, sampler=SAMPLERS[COUPLED])[1].tokens == expected


def test_a_later_request_of_the_same_model_drafts_again(tiny_model: LoadedModel) -> None:
    model = scripted_model(tiny_model.tokenizer, SCRIPT, head_broken=[20])
    for _ in range(2):
        _, listener = decode(ask(model, SCRIPT[:3], depth=3, max_tokens=30))
        assert listener.finished.stats.drafted == 13
