"""One answer from prompt to end: the same at every depth, reproducible by seed, cancelled and failed in the open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mtplxd.engine import judging, sampling
from mtplxd.engine.events import Event, Progress, Text
from mtplxd.engine.player import Player
from mtplxd.engine.ranking import Ranking
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.round import Flight
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import Array
from support.listening import Listener, ask, decode
from support.scripted_model import scripted_model

DEPTHS = [0, 1, 2, 3]
SAMPLED = SamplerSettings(temperature=0.8, top_p=0.95, seed=11)


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 300, rng.integers(1, 40)).tolist() for _ in range(count)]


def tokens_of(model: LoadedModel, prompt: list[int], **others: object) -> list[int]:
    return decode(ask(model, prompt, **({"ignore_eos": True} | others)))[1].tokens


def test_greedy_text_is_the_same_at_every_depth(tiny_model: LoadedModel) -> None:
    accepted = 0
    for prompt in prompts(6):
        plain = tokens_of(tiny_model, prompt, max_tokens=40)
        for depth in DEPTHS[1:]:
            decoder, listener = decode(ask(tiny_model, prompt, max_tokens=40, ignore_eos=True, depth=depth))
            assert listener.tokens == plain
            accepted += sum(decoder.row.counts.accepted)
    assert accepted > 80


def test_greedy_text_does_not_depend_on_the_seed_nor_on_repetition(tiny_model: LoadedModel) -> None:
    [prompt] = prompts(1, seed=1)
    texts = [
        tokens_of(tiny_model, prompt, depth=2, sampler=SamplerSettings(0.0, seed=n % 3)) for n in range(6)
    ]
    assert texts == [texts[0]] * 6


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_seed_means_one_text_whatever_was_decoded_before(tiny_model: LoadedModel, depth: int) -> None:
    [prompt, other] = prompts(2, seed=2)
    first = tokens_of(tiny_model, prompt, depth=depth, sampler=SAMPLED)
    tokens_of(tiny_model, other, depth=3, sampler=replace(SAMPLED, seed=99))
    assert tokens_of(tiny_model, prompt, depth=depth, sampler=SAMPLED) == first
    assert tokens_of(tiny_model, prompt, depth=depth, sampler=replace(SAMPLED, seed=12)) != first


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("sampler", [SamplerSettings(0.0), SAMPLED], ids=["greedy", "sampled"])
def test_a_prompt_of_one_token_decodes_at_any_depth(
    tiny_model: LoadedModel, depth: int, sampler: SamplerSettings
) -> None:
    decoder, listener = decode(
        ask(tiny_model, [77], depth=depth, sampler=sampler, ignore_eos=True, max_tokens=20)
    )
    assert len(listener.tokens) == 20
    assert decoder.row.counts.drafted > 0 or depth == 0
    if sampler.greedy:
        assert listener.tokens == tokens_of(tiny_model, [77], max_tokens=20)


@pytest.mark.parametrize("depth", DEPTHS)
def test_one_token_is_one_token(tiny_model: LoadedModel, depth: int) -> None:
    [prompt] = prompts(1, seed=3)
    decoder, listener = decode(ask(tiny_model, prompt, depth=depth, max_tokens=1, ignore_eos=True))
    assert listener.tokens == tokens_of(tiny_model, prompt)[:1]
    assert (decoder.row.counts.rounds, decoder.row.counts.drafted) == (1, 0)


@pytest.mark.parametrize("chunk", [1, 3, 16, 64])
def test_the_text_does_not_depend_on_how_prefill_is_cut(tiny_model: LoadedModel, chunk: int) -> None:
    prompt = prompts(1, seed=4)[0] * 2
    whole = tokens_of(tiny_model, prompt, depth=2)
    _, listener = decode(ask(tiny_model, prompt, depth=2, ignore_eos=True), chunk=chunk)
    assert listener.tokens == whole


@pytest.mark.parametrize("depth", [0, 3])
def test_too_few_candidates_cost_time_but_no_token(
    tiny_model: LoadedModel, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    [prompt] = prompts(1, seed=5)
    hot = SamplerSettings(temperature=1.5, top_p=0.97, seed=4)
    enough = tokens_of(tiny_model, prompt, depth=0, sampler=hot)
    monkeypatch.setattr(sampling, "CANDIDATES", 8)
    redone = []
    real = sampling._is_sound

    def watched(ranking: Ranking, keep: Array) -> Array:
        redone.append(ranking.all)
        return real(ranking, keep)

    monkeypatch.setattr(sampling, "_is_sound", watched)
    found = tokens_of(tiny_model, prompt, depth=depth, sampler=hot)
    assert sum(redone) > 5
    if depth == 0:
        assert found == enough
    assert found == tokens_of(tiny_model, prompt, depth=depth, sampler=hot)


def test_looking_ahead_changes_nothing_but_time(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [
        (prompt, sampler) for prompt in prompts(3, seed=6) for sampler in (SAMPLED, SamplerSettings(0.0))
    ]
    ahead = [tokens_of(tiny_model, prompt, sampler=sampler) for prompt, sampler in asked]
    monkeypatch.setattr(Player, "_launch_ahead", lambda _self, _flight: None)
    assert [tokens_of(tiny_model, prompt, sampler=sampler) for prompt, sampler in asked] == ahead


def test_plain_decoding_has_a_successor_in_flight_and_drafting_has_not(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, launched = Player._launch_ahead, []

    def watched(self: Player, flight: Flight) -> Flight | None:
        launched.append(real(self, flight))
        return launched[-1]

    monkeypatch.setattr(Player, "_launch_ahead", watched)
    tokens_of(tiny_model, [9, 8, 7], max_tokens=10)
    assert [flight is not None for flight in launched] == [True] * 9 + [False]
    launched.clear()
    tokens_of(tiny_model, [9, 8, 7], max_tokens=10, depth=2)
    assert not any(launched)


def test_a_cancel_between_chunks_of_the_prompt_ends_before_any_round(tiny_model: LoadedModel) -> None:
    origin: list[str] = []

    def cancel(event: Event) -> None:
        if isinstance(event, Progress) and event.done == 8:
            origin.append("client")

    listener = Listener(cancel)
    request = ask(tiny_model, list(range(3, 33)), depth=2)
    decoder, _ = decode(request, listener, poll=lambda: origin[0] if origin else None, chunk=4)
    assert [event.done for event in listener.progress] == [4, 8]
    assert (listener.finished.finish_reason, listener.finished.stop_origin) == ("cancelled", "client")
    assert listener.finished.completion_tokens == 0
    assert decoder.batch.cache[0].lengths == [12]


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("origin", ["client", "deadline", "operator", "shutdown"])
def test_a_cancel_between_rounds_keeps_what_was_made(
    tiny_model: LoadedModel, depth: int, origin: str
) -> None:
    heard: list[Event] = []
    listener = Listener(lambda event: heard.append(event) if isinstance(event, Text) else None)
    request = ask(tiny_model, [5, 6, 7], depth=depth, max_tokens=200, ignore_eos=True)
    decode(request, listener, poll=lambda: origin if len(heard) >= 3 else None)
    assert (listener.finished.finish_reason, listener.finished.stop_origin) == ("cancelled", origin)
    assert 3 <= len(listener.tokens) < 30
    assert listener.tokens == tokens_of(tiny_model, [5, 6, 7], max_tokens=len(listener.tokens))


@pytest.mark.parametrize("depth", DEPTHS)
def test_non_finite_logits_end_the_text_before_their_rounds_tokens(
    tiny_model: LoadedModel, depth: int
) -> None:
    script = [10, 11, 12, *range(40, 60)]
    model = scripted_model(tiny_model.tokenizer, script, broken=[13])
    _, listener = decode(ask(model, script[:3], depth=depth))
    finished = listener.finished
    assert (finished.finish_reason, finished.stop_origin) == ("error", "non_finite")
    assert "non-finite" in finished.message
    assert listener.tokens == script[3 : 3 + len(listener.tokens)]
    assert len(listener.tokens) == (10 if depth == 0 else 10 // (depth + 1) * (depth + 1))
    assert 0 not in listener.tokens


@pytest.mark.parametrize("sampler", [SamplerSettings(0.0), SAMPLED], ids=["greedy", "sampled"])
def test_a_head_that_breaks_is_named_and_the_text_goes_on_plainly(
    tiny_model: LoadedModel, sampler: SamplerSettings
) -> None:
    script = [10, 11, 12, *range(40, 80)]
    model = scripted_model(tiny_model.tokenizer, script, head_broken=[20])
    decoder, listener = decode(ask(model, script[:3], depth=3, max_tokens=30, sampler=sampler))
    assert listener.tokens == script[3:33]
    assert listener.finished.stats.degraded == ("head_non_finite",)
    # Four whole rounds, then one draft before the position whose numbers are none.
    assert listener.finished.stats.drafted == 4 * 3 + 1
    assert decoder.row.depth == 0


def test_stats_count_rounds_drafts_and_positions(tiny_model: LoadedModel) -> None:
    script = [10, 11, 12, *range(40, 60)]
    model = scripted_model(tiny_model.tokenizer, script, wrong=[4])
    _, listener = decode(ask(model, script[:3], depth=2, max_tokens=8))
    stats = listener.finished.stats
    # Rounds: one accepted of two (the draft for place 4 is wrong), then three tokens twice.
    assert listener.tokens == script[3:11]
    assert (stats.rounds, stats.drafted, stats.accepted) == (3, 6, 5)
    assert (stats.accepted_by_position, stats.judged_by_position) == ((3, 2), (3, 3))
    assert stats.acceptance_by_position == (1.0, pytest.approx(2 / 3))
    assert (stats.depth, stats.exactness, stats.degraded) == (2, "exact", ())
    assert stats.ttft_s >= 0
    assert stats.decode_s >= 0


def test_prefill_reports_progress_in_tokens(tiny_model: LoadedModel) -> None:
    _, listener = decode(ask(tiny_model, list(range(3, 20)), max_tokens=1), chunk=5)
    assert listener.progress == [Progress("prefill", done, 17) for done in (5, 10, 15)]


def test_a_plain_model_decodes_without_a_head(tiny_model: LoadedModel) -> None:
    plain = replace(tiny_model, head=None)
    assert tokens_of(plain, [5, 6, 7]) == tokens_of(tiny_model, [5, 6, 7])


@pytest.mark.parametrize("depth", [0, 3])
def test_a_text_whose_law_is_flat_once_is_ranked_by_more_candidates_from_then_on(
    tiny_model: LoadedModel, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    [prompt] = prompts(1, seed=5)
    hot = SamplerSettings(temperature=1.5, top_p=0.97, seed=4)
    enough = tokens_of(tiny_model, prompt, depth=0, sampler=hot)
    monkeypatch.setattr(judging, "FEW_CANDIDATES", 8)
    redone = []
    real = judging.filter_rows

    def watched(logits: Any, samplers: Any, *, full: bool = False, **options: Any) -> Any:
        redone.append(full)
        return real(logits, samplers, full=full, **options)

    monkeypatch.setattr(judging, "filter_rows", watched)
    found = tokens_of(tiny_model, prompt, depth=depth, sampler=hot)
    assert sum(redone) == 1
    if depth == 0:
        assert found == enough
