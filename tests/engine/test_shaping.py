"""Mask, bias and penalties equal their equations for any history, at any position, over any vocabulary and batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.draft_vocab import DraftVocab
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.shaping import Shaper, make_shaper, shape_logits
from mtplxd.families.load import LoadedModel
from mtplxd.platform.mlx import mx
from support.listening import ask, decode
from support.reference_laws import shaped_logits
from support.table_decoding import IDS, table_model
from support.table_model import TableHead, TableTarget

SIZE = 12
ids = st.integers(0, SIZE - 1)
samplers = st.builds(
    SamplerSettings,
    repetition_penalty=st.sampled_from([1.0, 1.5, 0.5, 4.0]),
    presence_penalty=st.sampled_from([0.0, 0.5, -1.25]),
    frequency_penalty=st.sampled_from([0.0, 0.25, -0.75]),
    logit_bias=st.dictionaries(ids, st.sampled_from([-4.0, 0.5, 100.0, -100.0]), max_size=3).map(
        lambda bias: tuple(bias.items())
    ),
)
rows = st.lists(
    st.tuples(samplers, st.lists(ids, min_size=1, max_size=6), st.lists(ids, max_size=8)),
    min_size=1,
    max_size=4,
)


def logits_of(seed: int, batch: int, positions: int, size: int) -> np.ndarray:
    """Quarters of both signs, zero among them."""
    return np.random.default_rng(seed).integers(-8, 9, (batch, positions, size)) / 4


def shapers_of(given_rows: Sequence[Any]) -> list[Shaper | None]:
    found = []
    for sampler, prompt, text in given_rows:
        shaper = make_shaper(sampler, prompt)
        if shaper:
            for begin in range(0, len(text), 3):
                shaper.commit(text[begin : begin + 3])
        found.append(shaper)
    return found


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(
    rows,
    st.lists(ids, min_size=12, max_size=12),
    st.integers(0, 3),
    st.sampled_from([None, (1, 4, 5, 9), tuple(range(SIZE))]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_every_position_has_seen_what_is_committed_and_the_drafts_before_it(
    given_rows: Any, drafted: list[int], depth: int, vocab: tuple[int, ...] | None, masked: bool, seed: int
) -> None:
    inside = vocab or tuple(range(SIZE))
    drafts = np.array([inside[token % len(inside)] for token in drafted]).reshape(4, 3)[
        : len(given_rows), :depth
    ]
    logits = logits_of(seed, len(given_rows), depth + 1, len(inside))
    masks = np.random.default_rng(seed).random(logits.shape) < 0.6 if masked else None
    found = np.array(
        shape_logits(
            mx.array(logits, mx.float32),
            shapers_of(given_rows),
            mx.array(drafts.astype(np.int32)),
            0,
            None if masks is None else mx.array(masks),
            None if vocab is None else DraftVocab(mx.array(vocab, mx.int32), SIZE),
        )
    )
    for b, (sampler, prompt, text) in enumerate(given_rows):
        for place in range(depth + 1):
            seen = (*text, *drafts[b, :place].tolist())
            allowed = None if masks is None else {inside[cell] for cell in np.flatnonzero(masks[b, place])}
            expected = shaped_logits(logits[b, place], sampler, tuple(prompt), seen, allowed, inside)
            if allowed == set():
                expected[:] = -np.inf  # who calls sees to it that something is allowed
            assert np.allclose(found[b, place], expected, rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=40, derandomize=True, database=None)
@given(rows, st.lists(ids, min_size=4, max_size=4), st.integers(0, 10**6))
def test_a_token_still_in_flight_counts_as_generated(given_rows: Any, last: list[int], seed: int) -> None:
    logits = logits_of(seed, len(given_rows), 1, SIZE)
    unseen = mx.array([[token] for token in last[: len(given_rows)]], mx.int32)
    found = np.array(shape_logits(mx.array(logits, mx.float32), shapers_of(given_rows), unseen, 1))
    for b, (sampler, prompt, text) in enumerate(given_rows):
        expected = shaped_logits(logits[b, 0], sampler, tuple(prompt), (*text, last[b]))
        assert np.allclose(found[b, 0], expected, rtol=1e-6, atol=1e-6)


def test_what_asks_for_nothing_has_no_shaper_and_changes_no_logit() -> None:
    assert make_shaper(SamplerSettings(temperature=0.3, top_k=4), [1, 2]) is None
    logits = mx.array(logits_of(0, 2, 3, SIZE), mx.float32)
    assert shape_logits(logits, [None, None], mx.zeros((2, 2), mx.int32)) is logits


def test_masked_ids_stay_masked_whatever_their_bias_and_penalties() -> None:
    sampler = SamplerSettings(logit_bias=((1, 100.0),), repetition_penalty=0.5, frequency_penalty=-2.0)
    shaper = make_shaper(sampler, [1, 1])
    masks = mx.arange(SIZE)[None, None] != 1
    found = shape_logits(mx.zeros((1, 1, SIZE)), [shaper], mx.array([[1]]), 1, masks)
    assert found[0, 0, 1].item() == -np.inf
    assert np.isfinite(np.array(found)).sum() == SIZE - 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_chain_keeps_the_dtype_of_the_logits(dtype: str) -> None:
    sampler = SamplerSettings(logit_bias=((1, 0.5),), repetition_penalty=1.5, presence_penalty=0.1)
    logits = mx.zeros((1, 2, SIZE), getattr(mx, dtype))
    shaped = shape_logits(logits, [make_shaper(sampler, [3])], mx.array([[2]]), 0)
    assert shaped.dtype == getattr(mx, dtype)


@pytest.mark.parametrize(
    "shape",
    [
        {"repetition_penalty": 1.5},
        {"presence_penalty": 1.0},
        {"frequency_penalty": 0.75},
        {"logit_bias": ((3, 2.0), (7, -100.0))},
        {"repetition_penalty": 1.2, "frequency_penalty": -0.5, "logit_bias": ((4, 0.5),)},
    ],
    ids=str,
)
def test_greedy_text_under_any_of_them_is_the_same_at_every_depth(
    tiny_model: LoadedModel, shape: dict[str, Any]
) -> None:
    target = TableTarget(IDS, seed=8)
    sampler = replace(SamplerSettings(temperature=0.0), **shape)
    text: tuple[int, ...] = ()
    for _ in range(25):
        logits = shaped_logits(target.logits_after([5, 6, *text]), sampler, (5, 6), text)
        text = (*text, int(np.argmax(logits)))
    for depth in range(5):
        head = TableHead(target, range(1, IDS), seed=9)
        request = ask(table_model(tiny_model.tokenizer, target, head), [5, 6], depth=depth, sampler=sampler)
        request.max_tokens, request.ignore_eos = 25, True
        assert decode(request)[1].tokens == list(text)
