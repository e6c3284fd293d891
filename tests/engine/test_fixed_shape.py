"""A reproducible text is one bit for bit at every depth: forwards have one shape, and a row of it one set of bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mtplxd.engine import batch as opening
from mtplxd.engine import player as playing
from mtplxd.engine.batch import Batch
from mtplxd.engine.fixed_shape import BLOCK, is_shape_stable, room_in_block
from mtplxd.engine.player import Player
from mtplxd.engine.request import COUPLED, DraftSampler, SamplerSettings
from mtplxd.engine.round import Flight, Landing
from mtplxd.families.caches import RowCache
from mtplxd.families.load import LoadedModel
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import Array, mx
from support.listening import ask, decode

DEPTHS = [0, 1, 2, 3]
SAMPLED = SamplerSettings(0.8, top_p=0.95, seed=11, acceptance=COUPLED, reproducible=True)
SAMPLERS = {
    "sampled": SAMPLED,
    "greedy": replace(SAMPLED, temperature=0.0),
    "shaped": replace(
        SAMPLED, repetition_penalty=1.2, logit_bias=((9, 1.0),), draft=DraftSampler(temperature=1.3)
    ),
}


def prompt_of(length: int) -> list[int]:
    return [(place * 13) % 290 + 5 for place in range(length)]


class Recorder:
    """Decodes, and keeps the logits that each committed token was chosen from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logits: list[np.ndarray] = []
        real = playing.land

        def land(batch: Batch, flight: Flight) -> list[Landing]:
            landings = real(batch, flight)
            self.logits += list(np.array(flight.raw[0, : len(landings[0].tokens)]))
            return landings

        monkeypatch.setattr(playing, "land", land)

    def answer(
        self, model: LoadedModel, depth: int, prompt: list[int], **others: Any
    ) -> tuple[list[int], np.ndarray]:
        self.logits.clear()
        given = {"sampler": SAMPLED, "max_tokens": 30, "ignore_eos": True} | others
        decoder, listener = decode(ask(model, prompt, depth=depth, **given))
        self.accepted = sum(decoder.row.counts.accepted)
        return listener.tokens, np.array(self.logits[: len(listener.tokens)])


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


@pytest.mark.parametrize(
    ("name", "length"),
    [
        *(("sampled", length) for length in (1, 12, BLOCK - 20, BLOCK - 1, BLOCK, BLOCK + 1)),
        *((name, length) for name in ("greedy", "shaped") for length in (12, BLOCK - 20)),
    ],
)
def test_text_and_logits_are_the_same_bits_at_every_depth(
    tiny_model: LoadedModel, recorder: Recorder, name: str, length: int
) -> None:
    """The longer prompts make their text on both sides of a block's end."""
    prompt = prompt_of(length)
    plain, bits = recorder.answer(tiny_model, 0, prompt, sampler=SAMPLERS[name])
    for depth in DEPTHS[1:]:
        tokens, other = recorder.answer(tiny_model, depth, prompt, sampler=SAMPLERS[name])
        assert tokens == plain
        assert np.array_equal(other.view(np.uint32), bits.view(np.uint32))
        assert recorder.accepted > 3 or name == "greedy"


class Watched:
    """A target that remembers the shapes of its forwards; `wobble` is added by the place in a forward."""

    def __init__(self, target: Any, wobble: float = 0.0) -> None:
        self._target, self._wobble = target, wobble
        self.vocab_size = target.vocab_size
        self.counts: list[int] = []

    def make_cache(self, rows: int) -> list[LayerCache]:
        return self._target.make_cache(rows)  # type: ignore[no-any-return]

    def run(self, tokens: Array, cache: list[LayerCache]) -> tuple[Array, Taps]:
        self.counts.append(tokens.shape[1])
        hidden, taps = self._target.run(tokens, cache)
        return hidden + self._wobble * mx.arange(tokens.shape[1])[None, :, None], taps

    def logits(self, hidden: Array) -> Array:
        return self._target.logits(hidden)


class Shaky(Watched):
    """A target whose numbers depend on how many positions a forward has and how many slots it attends over."""

    def run(self, tokens: Array, cache: list[LayerCache]) -> tuple[Array, Taps]:
        mask = cache[0].make_mask(tokens.shape[1], return_array=True)
        seen = cache[0].lengths[0] + 1 if mask is None else mask.shape[-1]
        hidden, taps = super().run(tokens, cache)
        return hidden + (1e-4 * tokens.shape[1] + 1e-5 * seen), taps


def shaky_bits(recorder: Recorder, tiny_model: LoadedModel, length: int) -> list[np.ndarray]:
    model = replace(tiny_model, target=Shaky(tiny_model.target), shape_stable=True)
    return [recorder.answer(model, depth, prompt_of(length))[1] for depth in DEPTHS]


@pytest.mark.parametrize("length", [40, BLOCK - 9])
def test_numbers_that_depend_on_shapes_are_the_same_at_every_depth(
    tiny_model: LoadedModel, recorder: Recorder, length: int
) -> None:
    plain, *others = shaky_bits(recorder, tiny_model, length)
    assert all(np.array_equal(plain, other) for other in others)


def without_padding(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "fix_shape", lambda *_: None)


def without_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RowCache, "fix_window", lambda *_: None)


def across_blocks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(playing, "room_in_block", lambda _: 99)


@pytest.mark.parametrize("mutant", [without_padding, without_window, across_blocks])
def test_they_are_not(
    mutant: Any, tiny_model: LoadedModel, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    # Which round accepts a draft beyond the block's end is luck.
    found = (shaky_bits(recorder, tiny_model, BLOCK - before) for before in range(1, 9))
    assert any(not np.array_equal(bits[0], other) for bits in found for other in bits[1:])


@pytest.mark.parametrize("depth", DEPTHS)
def test_every_forward_after_the_prompt_has_the_packs_width(tiny_model: LoadedModel, depth: int) -> None:
    watched = Watched(tiny_model.target)
    model = replace(tiny_model, target=watched, shape_stable=True)
    decode(ask(model, prompt_of(12), depth=depth, sampler=SAMPLED, ignore_eos=True, max_tokens=12))
    assert watched.counts[0] == 11
    assert set(watched.counts[1:]) == {tiny_model.fixed_width}


def test_other_requests_keep_their_small_forwards(tiny_model: LoadedModel) -> None:
    watched = Watched(tiny_model.target)
    sampler = replace(SAMPLED, reproducible=False)
    decoder, _ = decode(
        ask(replace(tiny_model, target=watched), prompt_of(12), depth=2, sampler=sampler, max_tokens=12)
    )
    assert max(watched.counts[1:]) == 3
    assert decoder.batch.width is None


def test_a_reproducible_round_at_depth_0_has_no_successor_in_flight(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = []
    real = Player._launch_ahead
    monkeypatch.setattr(Player, "_launch_ahead", lambda *given: launched.append(real(*given)))
    decode(ask(tiny_model, prompt_of(5), sampler=SAMPLED, max_tokens=5))
    assert launched
    assert not any(launched)


@pytest.mark.parametrize("committed", [1, 2, 100, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 2, 2 * BLOCK, 1000])
def test_drafts_stay_in_the_block_of_the_last_token(committed: int) -> None:
    last, room = committed - 1, room_in_block(committed)
    assert room >= 0
    assert (last + room) // BLOCK == last // BLOCK
    assert (last + room + 1) // BLOCK == last // BLOCK + 1


def test_no_round_crosses_a_blocks_end(tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = []
    real = playing.launch

    def launch(batch: Batch, *others: Any) -> Flight:
        flight = real(batch, *others)
        spans.append((flight.begin[0], flight.begin[0] + flight.depth))
        return flight

    monkeypatch.setattr(playing, "launch", launch)
    decode(ask(tiny_model, prompt_of(BLOCK - 9), depth=3, sampler=SAMPLED, ignore_eos=True, max_tokens=20))
    assert all(begin // BLOCK == end // BLOCK for begin, end in spans)
    assert spans[-1][1] >= BLOCK


def test_the_tiny_model_is_shape_stable_and_a_wobbling_one_is_not(tiny_model: LoadedModel) -> None:
    assert is_shape_stable(tiny_model.target, 4)
    assert not is_shape_stable(Watched(tiny_model.target, wobble=1e-3), 4)


@pytest.mark.parametrize(("wobble", "exactness"), [(0.0, "exact"), (1e-3, "near-tie")])
def test_an_answer_says_whether_its_text_is_exactly_one(
    tiny_model: LoadedModel, wobble: float, exactness: str
) -> None:
    model = replace(tiny_model, target=Watched(tiny_model.target, wobble), shape_stable=None)
    for sampler, expected in ((SAMPLED, exactness), (replace(SAMPLED, reproducible=False), "exact")):
        _, listener = decode(ask(model, prompt_of(6), sampler=sampler, max_tokens=4))
        assert listener.finished.stats.exactness == expected


def test_stability_is_looked_into_once_for_a_loaded_model(tiny_model: LoadedModel) -> None:
    model = replace(tiny_model, target=Watched(tiny_model.target), shape_stable=None)
    for _ in range(2):
        decode(ask(model, prompt_of(6), sampler=SAMPLED, max_tokens=1))
        count = len(model.target.counts)  # type: ignore[attr-defined]
        model.target.counts.clear()  # type: ignore[attr-defined]
    assert model.shape_stable
    assert count == 2
