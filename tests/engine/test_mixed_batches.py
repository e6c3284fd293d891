"""Rows of one batch may differ in rule, depth, sampler, grammar and seed: each gets the text it gets alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from mtplxd.engine.batch import Batch
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, SamplerSettings
from mtplxd.engine.round import commit, land, launch
from mtplxd.engine.row import Row
from mtplxd.engine.shaping import make_shaper
from mtplxd.engine.uniforms import RoundUniforms, UniformSupply
from support.ragged import assert_settled, open_ragged
from support.shaped import IDS, LANGUAGE, SHAPED
from support.table_model import TableHead, TableTarget


@dataclass(frozen=True)
class Spec:
    """One row: what it begins with and how it is decoded."""

    prompt: tuple[int, ...]
    sampler: SamplerSettings
    depth: int
    masked: bool = False


SPECS = [
    Spec((5, 6), SamplerSettings(0.0), 3),
    Spec((7, 1, 2, 3, 9, 10, 11), SamplerSettings(0.8, top_p=0.9, seed=1, acceptance=TOKEN), 2),
    Spec((3,), replace(SHAPED, seed=2, acceptance=BLOCK), 4, masked=True),
    Spec((5, 5, 5), replace(SHAPED, seed=3, acceptance=COUPLED), 3),
    Spec((1, 2, 3, 4), SamplerSettings(1.0, seed=4, acceptance=BLOCK), 1),
    Spec((8, 9), replace(SHAPED, seed=5, acceptance=TOKEN), 0),
    Spec((8, 9), SamplerSettings(1.1, seed=6, acceptance=COUPLED), 1, masked=True),
    Spec((2, 4), replace(SHAPED, temperature=0.0), 2, masked=True),
]


def open_rows(specs: Sequence[Spec]) -> Batch:
    target = TableTarget(IDS, seed=1, spread=2.0)
    head = TableHead(target, range(1, IDS), seed=2, spread=1.5)
    batch = open_ragged(target, head, [spec.prompt for spec in specs], SHAPED)
    for b, (spec, bare) in enumerate(zip(specs, batch.rows, strict=True)):
        matcher: Any = LANGUAGE.start() if spec.masked else None
        shaper = make_shaper(spec.sampler, spec.prompt)
        tokens, pending = list(spec.prompt), bare.pending
        batch.rows[b] = Row(tokens, spec.sampler, spec.depth, pending=pending, shaper=shaper, matcher=matcher)
    return batch


def texts(specs: Sequence[Spec], length: int = 14) -> list[list[int]]:
    """Each row's first tokens, by real rounds with the real source."""
    batch = open_rows(specs)
    supplies = [UniformSupply(spec.sampler.seed) for spec in specs]
    turn = 0
    while (
        min(len(row.tokens) - len(spec.prompt) for row, spec in zip(batch.rows, specs, strict=True)) < length
    ):
        source = RoundUniforms(supplies, [turn] * len(specs), [len(row.tokens) for row in batch.rows])
        flight = launch(batch, source, [spec.depth for spec in specs])
        landings = land(batch, flight)
        commit(batch, flight, landings, [len(landing.tokens) for landing in landings])
        for row, landing in zip(batch.rows, landings, strict=True):
            if row.matcher:
                assert all(row.matcher.advance(token) for token in landing.tokens)
        turn += 1
    assert_settled(batch)
    return [row.tokens[len(spec.prompt) :][:length] for row, spec in zip(batch.rows, specs, strict=True)]


def test_each_row_of_a_mixed_batch_has_the_text_it_has_alone() -> None:
    assert texts(SPECS) == [texts([spec])[0] for spec in SPECS]


@pytest.mark.parametrize("pair", [(1, 2), (1, 3), (2, 3), (0, 3), (0, 2), (3, 6)], ids=str)
def test_any_two_rules_side_by_side(pair: tuple[int, int]) -> None:
    specs = [SPECS[place] for place in pair]
    assert texts(specs) == [texts([spec])[0] for spec in specs]


def test_the_order_of_rows_means_nothing() -> None:
    assert texts(SPECS[::-1]) == texts(SPECS)[::-1]


def test_a_coupled_row_is_the_same_whatever_its_depth_and_its_neighbours() -> None:
    rows = [replace(SPECS[3], depth=depth) for depth in range(5)]
    assert texts([*rows, *SPECS[:3]])[:5] == [texts([SPECS[3]])[0]] * 5


def test_masked_rows_keep_to_their_grammar_and_others_do_not_notice() -> None:
    for spec, text in zip(SPECS, texts(SPECS), strict=True):
        assert (LANGUAGE.state(text) is not None) == spec.masked
