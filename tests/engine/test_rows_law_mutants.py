"""The proof of rows has teeth: whatever a row takes from its neighbour instead of its own is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from mtplxd.engine import drafting, judging
from mtplxd.engine import round as rounds
from mtplxd.engine.judging import Drafts
from mtplxd.engine.masking import MaskWalk
from mtplxd.engine.request import BLOCK, TOKEN, DraftSampler, SamplerSettings
from mtplxd.engine.row import Row
from mtplxd.families.caches import RowCache
from mtplxd.platform.mlx import mx
from support.enumeration import CellSource, Problem
from support.exact_float64 import use_exact_exponentials
from support.proof_cases import EVERYTHING, GRAMMAR, fixed, plain_law
from support.reference_laws import total_variation
from support.row_proof import Company
from support.table_model import TableHead, TableTarget

CLEARLY = 1e-3
SHAPED = SamplerSettings(temperature=1.3, top_k=4, **EVERYTHING)
PROBLEMS = [
    Problem((1, 3, 2), replace(SHAPED, acceptance=TOKEN), fixed(1), GRAMMAR),
    Problem((4, 0, 3, 3, 1, 4), SamplerSettings(0.8, top_p=0.9, acceptance=BLOCK), fixed(2)),
    Problem((0,), SamplerSettings(1.6, acceptance=TOKEN, draft=DraftSampler(0.5)), fixed(2)),
]

Patch = Callable[[pytest.MonkeyPatch], None]
real_judge, real_draw_drafts, real_shape = rounds.judge, drafting.draw_drafts, rounds.shape_logits
real_draw, real_pad, real_verify = judging.draw, drafting._pad_pairs, rounds._verify
real_update, real_accept = RowCache.update_and_fetch, CellSource.accept


def turned(values: Sequence[Any]) -> list[Any]:
    """Each row's neighbour's."""
    return [*values[1:], values[0]]


def as_neighbours(rows: Sequence[Row], *names: str) -> list[Row]:
    """Rows with what has these names taken from their neighbours."""
    found = []
    for row, other in zip(rows, turned(rows), strict=True):
        mixed = Row(row.tokens, row.sampler, row.depth, shaper=row.shaper, matcher=row.matcher, flat=row.flat)
        for name in names:
            setattr(mixed, name, getattr(other, name))
        found.append(mixed)
    return found


def sampler_of_another_row(patch: pytest.MonkeyPatch) -> None:
    def judge(rows: Any, *others: Any, full: bool) -> Any:
        return real_judge(as_neighbours(rows, "sampler"), *others, full=full)

    patch.setattr(rounds, "judge", judge)


def rule_of_another_row(patch: pytest.MonkeyPatch) -> None:
    """As lawful as its own, but it accepts otherwise."""

    def judge(rows: Any, *others: Any, full: bool) -> Any:
        return real_judge(as_neighbours(rows, "rule"), *others, full=full)

    patch.setattr(rounds, "judge", judge)


def history_of_another_row(patch: pytest.MonkeyPatch) -> None:
    def shape(logits: Any, shapers: Any, *others: Any, **named: Any) -> Any:
        return real_shape(logits, turned(shapers), *others, **named)

    patch.setattr(rounds, "shape_logits", shape)


def drafts_of_another_row_in_the_history(patch: pytest.MonkeyPatch) -> None:
    def shape(logits: Any, shapers: Any, unseen: Any, *others: Any, **named: Any) -> Any:
        return real_shape(logits, shapers, mx.roll(unseen, 1, axis=0), *others, **named)

    patch.setattr(rounds, "shape_logits", shape)


def uniforms_of_another_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(judging, "draw", lambda law, uniforms: real_draw(law, mx.roll(uniforms, 1)))


def judged_with_the_uniforms_of_another_row(patch: pytest.MonkeyPatch) -> None:
    def accept(self: CellSource, chances: Any) -> Any:
        return mx.roll(real_accept(self, chances), 1, axis=0)

    patch.setattr(CellSource, "accept", accept)


def masks_of_another_row(patch: pytest.MonkeyPatch) -> None:
    real_finish = MaskWalk.finish

    def finish(self: MaskWalk, drafts: Any) -> Any:
        masks = real_finish(self, drafts)
        return masks[[*range(1, len(masks)), 0]]

    patch.setattr(MaskWalk, "finish", finish)


def last_token_of_another_row(patch: pytest.MonkeyPatch) -> None:
    def verify(batch: Any, _last: Any, drafts: Any) -> Any:
        return real_verify(batch, mx.array(turned([row.tokens[-1] for row in batch.rows]), mx.int32), drafts)

    patch.setattr(rounds, "_verify", verify)


def slots_at_the_length_of_another_row(patch: pytest.MonkeyPatch) -> None:
    def update(self: RowCache, keys: Any, values: Any) -> Any:
        own = self.lengths
        self.lengths = turned(own)
        seen = real_update(self, keys, values)
        self.lengths = [length + keys.shape[2] for length in own]
        return seen

    patch.setattr(RowCache, "update_and_fetch", update)


def laws_of_another_rows_drafts(patch: pytest.MonkeyPatch) -> None:
    def draw_drafts(*given: Any) -> Any:
        ids, law = real_draw_drafts(*given)
        return ids, mx.roll(law, 1, axis=0)

    patch.setattr(drafting, "draw_drafts", draw_drafts)


def lengths_of_another_row(patch: pytest.MonkeyPatch) -> None:
    """The rest of a row's drafts is lawful too, but it is not what was asked for."""

    def judge(rows: Any, logits: Any, drafts: Drafts, source: Any, *, full: bool) -> Any:
        return real_judge(
            rows, logits, replace(drafts, lengths=mx.roll(drafts.lengths, 1)), source, full=full
        )

    patch.setattr(rounds, "judge", judge)


def padding_that_counts_as_drafts(patch: pytest.MonkeyPatch) -> None:
    def count(healthy: Any, wanted: Any) -> Any:
        return real_count(healthy, [max(wanted)] * len(wanted))

    real_count = drafting._count_sane
    patch.setattr(drafting, "_count_sane", count)


def pending_of_another_row(patch: pytest.MonkeyPatch) -> None:
    """What is drafted from is no matter of law; what the head's cache holds is checked."""

    def pad(rows: Any, counts: Any, width: int) -> Any:
        tokens, taps = real_pad(rows, counts, width)
        return tokens, tuple(mx.roll(tap, 1, axis=0) for tap in taps)

    patch.setattr(drafting, "_pad_pairs", pad)


def as_many_pairs_kept_as_of_another_row(patch: pytest.MonkeyPatch) -> None:
    real_keep = rounds.keep_pairs
    patch.setattr(rounds, "keep_pairs", lambda cache, pairs: real_keep(cache, [min(pairs)] * len(pairs)))


UNLAWFUL: list[Patch] = [
    sampler_of_another_row,
    history_of_another_row,
    uniforms_of_another_row,
    judged_with_the_uniforms_of_another_row,
    masks_of_another_row,
    last_token_of_another_row,
    slots_at_the_length_of_another_row,
    laws_of_another_rows_drafts,
]
OUT_OF_STEP: list[Patch] = [
    rule_of_another_row,
    lengths_of_another_row,
    padding_that_counts_as_drafts,
    pending_of_another_row,
    as_many_pairs_kept_as_of_another_row,
]


@pytest.fixture(autouse=True)
def _exact_exponentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_exact_exponentials(monkeypatch)


def company(rows: int, place: int, *, checked: bool) -> Company:
    target = TableTarget(dtype=mx.float64, seed=31)
    head = TableHead(target, (0, 2, 3), seed=32)
    turn = 0
    return Company(
        target, head, 2 if checked else 1, checked, checked, problems=PROBLEMS[:rows], place=place, turn=turn
    )


@pytest.mark.parametrize("rows", [2, 3])
def test_the_law_of_second_tokens_is_another_with_drafts_of_another_row_in_the_history(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts_of_another_row_in_the_history(monkeypatch)
    assert largest_distance(rows, checked=True) > CLEARLY


def largest_distance(rows: int, *, checked: bool = False) -> float:
    """Total variation from plain decoding's law, of whichever row is farthest off."""
    found = []
    for place in range(rows):
        model = company(rows, place, checked=checked)
        expected = plain_law(model.target, PROBLEMS[place], model.horizon)
        found.append(total_variation(model.law(), expected))
    return max(found)


@pytest.mark.parametrize("rows", [2, 3])
def test_the_real_functions_pass_the_measures_the_mutants_fail(rows: int) -> None:
    assert largest_distance(rows) <= 1e-9
    assert largest_distance(rows, checked=True) <= 1e-9


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("mutant", UNLAWFUL, ids=lambda mutant: mutant.__name__)
def test_the_law_of_rows_is_another_with(mutant: Patch, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert largest_distance(rows) > CLEARLY


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("mutant", OUT_OF_STEP, ids=lambda mutant: mutant.__name__)
def test_rows_are_out_of_step_with(mutant: Patch, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        largest_distance(rows, checked=True)
