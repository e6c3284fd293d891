"""Recurrent layers are wrapped in place, checked against mlx-lm's own at load, and refused by name where unknown."""

from __future__ import annotations

from typing import Any

import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.caches import make_caches
from mtplxd.families.recurrence import wrap_recurrences
from mtplxd.families.recurrence.replays import Rerun, Tape
from mtplxd.families.recurrence.taped import Recorder
from mtplxd.platform.mlx import mx, nn, tree
from support.recurrent import StockRun, farthest, held, random_model, roll_back, states, tokens_of

PROMPT, STRETCH = 21, 4


def left_behind(model: Any, count: int) -> set[type]:
    """What a forward of so many positions leaves in the recurrent layers' caches."""
    caches = make_caches(model, 1)
    model(tokens_of(0, count), cache=caches)
    return {type(cache.replay) for cache in held(caches)}


@pytest.mark.parametrize("family", ["qwen3_next", "nemotron_h", "kimi_linear", "falcon_h1", "mamba"])
def test_on_other_caches_and_on_none_a_wrapped_model_is_the_stock_one(family: str) -> None:
    from mlx_lm.models.cache import make_prompt_cache

    model, stock = random_model(family), random_model(family)
    wrap_recurrences(model)
    assert mx.array_equal(model(tokens_of(0, 9)), stock(tokens_of(0, 9))).item()
    own, theirs = make_prompt_cache(model), make_prompt_cache(stock)
    for count in (9, 1, 4):
        found, expected = (m(tokens_of(count, count), cache=c) for m, c in ((model, own), (stock, theirs)))
        assert mx.array_equal(found, expected).item()


@pytest.mark.parametrize(
    "family", ["qwen3_next", "olmo_hybrid", "kimi_linear", "bailing_moe_v3", "nemotron_h", "jamba", "lfm2"]
)
def test_forwards_on_our_caches_give_the_stock_models_numbers(family: str) -> None:
    model, stock = random_model(family), random_model(family)
    wrap_recurrences(model)
    caches, fresh = make_caches(model, 1), StockRun(stock)
    for seed, count in enumerate((PROMPT, STRETCH, 1, 1, 2)):
        model(tokens_of(seed, count), cache=caches)
        assert farthest(states(caches), fresh.feed(tokens_of(seed, count)).states) == 0


def test_parameters_keep_their_names_and_other_models_their_classes() -> None:
    model, stock = random_model("qwen3_next"), random_model("qwen3_next")
    names = [name for name, _ in tree.tree_flatten(model.parameters())]
    wrap_recurrences(model)
    assert [name for name, _ in tree.tree_flatten(model.parameters())] == names
    layer, other = model.layers[0].linear_attn, stock.layers[0].linear_attn
    assert isinstance(layer, type(other))
    assert type(layer) is not type(other)
    assert type(other.conv1d) is nn.Conv1d


def test_a_model_without_recurrent_layers_is_left_alone(tiny_model: Any) -> None:
    assert wrap_recurrences(tiny_model.target.model) == []


@pytest.mark.parametrize("family", ["rwkv7"])
def test_a_body_with_recurrent_layers_of_no_known_class_is_refused_by_name(family: str) -> None:
    with pytest.raises(FailedPrecondition, match=family):
        wrap_recurrences(random_model(family))


def test_short_forwards_leave_a_tape_and_long_ones_their_inputs() -> None:
    model = random_model("qwen3_next")
    wrap_recurrences(model)
    assert left_behind(model, STRETCH) == {Tape}
    assert left_behind(model, 512) == {Rerun}
    assert left_behind(model, 1) == {type(None)}


def spoil_tapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every replay one position short, as a wrapper that no longer fits mlx-lm's code would."""
    honest = Tape.after
    monkeypatch.setattr(Tape, "after", lambda tape, before, count: honest(tape, before, max(1, count - 1)))


@pytest.mark.parametrize("family", ["qwen3_next", "nemotron_h", "kimi_linear"])
def test_a_replay_that_is_wrong_is_found_at_load_and_the_layer_is_run_again_instead(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, stock = random_model(family), random_model(family)
    spoil_tapes(monkeypatch)
    [reason] = wrap_recurrences(model)
    assert reason.startswith(f"slow_rollback ({family}.")
    assert left_behind(model, STRETCH) == {Rerun}
    caches = make_caches(model, 1)
    for seed, count in enumerate((PROMPT, STRETCH)):
        model(tokens_of(seed, count), cache=caches)
    roll_back(caches, [PROMPT + 2])
    fresh = StockRun(stock).feed(tokens_of(0, PROMPT)).feed(tokens_of(1, STRETCH)[:, :2])
    assert farthest(states(caches), fresh.states) <= 2e-6


def test_a_layer_that_calls_its_recurrence_by_another_name_is_run_again_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mlx_lm.models import qwen3_next

    stock = qwen3_next.Qwen3NextGatedDeltaNet

    class Renamed(stock):  # type: ignore[misc, valid-type]
        """Its own code, behind a call that the wrapper does not know."""

        def __call__(self, x: Any, mask: Any = None, cache: Any = None) -> Any:
            return stock.__call__(self, x, mask, cache)

    Renamed.__name__ = stock.__name__
    Renamed.__module__ = stock.__module__
    monkeypatch.setattr(qwen3_next, "Qwen3NextGatedDeltaNet", Renamed)
    model = random_model("qwen3_next")
    assert wrap_recurrences(model) == ["slow_rollback (qwen3_next.Qwen3NextGatedDeltaNet)"]
    assert left_behind(model, STRETCH) == {Rerun}


def test_a_layer_that_neither_way_can_take_back_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_tapes(monkeypatch)
    honest = Rerun.after
    monkeypatch.setattr(Rerun, "after", lambda rerun, before, count: honest(rerun, before, max(1, count - 1)))
    with pytest.raises(FailedPrecondition, match=r"nemotron_h\.NemotronHMamba2Mixer"):
        wrap_recurrences(random_model("nemotron_h"))


def test_a_tape_that_misses_a_convolution_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "note_convolution", lambda *_: None)
    model = random_model("qwen3_5")
    assert wrap_recurrences(model) == ["slow_rollback (qwen3_5.GatedDeltaNet)"]
