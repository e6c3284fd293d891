"""Drawing inverts the cumulated law and accepting compares with a chance: what enumerating by cells rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.acceptance import count_before_failure, residual_law, token_chances
from mtplxd.engine.judging import Drafts, judge
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.row import Row
from mtplxd.engine.sampling import draw
from mtplxd.engine.uniforms import RoundUniforms
from mtplxd.platform.mlx import mx
from support.laws import only, whole
from support.ragged import counted

masses = st.lists(st.integers(0, 6), min_size=1, max_size=12).filter(any)
DTYPES = {"float32": (np.float32, mx.float32), "float64": (np.float64, mx.float64)}


@pytest.mark.parametrize("name", DTYPES)
def test_every_uniform_inside_a_cell_draws_that_cell(name: str) -> None:
    kind, dtype = DTYPES[name]

    @settings(deadline=None, max_examples=75, derandomize=True, database=None)
    @given(masses, st.sampled_from([1.0, 0.3, 1e-6]))
    def check(parts: list[int], scale: float) -> None:
        law = (np.array(parts) * scale).astype(kind)
        sums = np.cumsum(law)
        for cell in np.flatnonzero(law):
            low = kind(0) if cell == 0 else sums[cell - 1] / sums[-1]
            high = sums[cell] / sums[-1]
            inside = [low + (high - low) * kind(share) for share in (1e-5, 0.5, 1 - 1e-5)]
            drawn = draw(only(np.stack([law] * 3), dtype), mx.array(np.array(inside, kind), dtype))
            assert drawn.tolist() == [cell] * 3

    check()


def test_the_border_of_two_cells_belongs_to_the_upper_one() -> None:
    law = only([[0.25, 0.25, 0.0, 0.5]] * 4)
    below = float(np.nextafter(np.float32(0.5), np.float32(0)))
    assert draw(law, mx.array([0.0, 0.25, below, 0.5])).tolist() == [0, 1, 1, 3]


@settings(deadline=None, max_examples=75, derandomize=True, database=None)
@given(masses, st.floats(0, 1, exclude_max=True, width=32))
def test_a_token_without_mass_is_never_drawn(parts: list[int], uniform: float) -> None:
    law = np.array(parts, np.float32) / np.float32(3)
    highest = float(np.nextafter(np.float32(1), np.float32(0)))
    drawn = draw(only(np.stack([law] * 3)), mx.array([0.0, uniform, highest], mx.float32))
    assert (law[np.array(drawn)] > 0).all()


class OneUniform:
    """The same uniform for every judgement; the last token from the middle."""

    def __init__(self, uniform: float) -> None:
        self.uniform = uniform

    def draft(self, _step: int, law: Any) -> Any:
        return mx.full(law.sound.shape, 0.5)

    def accept(self, chances: Any) -> Any:
        return mx.full(chances.shape, self.uniform, chances.dtype)

    def final(self, law: Any) -> Any:
        return mx.full(law.weights.shape[:1], 0.5, law.dtype)


def judged(p: list[float], q: list[float], draft: int, uniform: float) -> int:
    """How many of one draft the real judge accepts at this uniform."""
    logits = mx.log(mx.array([[p, p]], mx.float32))
    drafts = Drafts(mx.array([[draft]]), mx.array([[q]], mx.float32), mx.array([1]), mx.array([True]))
    rows = [Row([0, 1], SamplerSettings(), 1)]
    accepted, _, _ = judge(rows, logits, drafts, OneUniform(uniform), full=False)[:3]
    return int(accepted.item())


def test_a_draft_passes_exactly_below_its_chance() -> None:
    p, q = [0.125, 0.875], [0.5, 0.5]
    chance = np.float32(token_chances(whole([[p, p]], [[q]], [[0]])).pass_with.item())
    assert chance == np.float32(0.25)
    assert judged(p, q, 0, 0.2499) == 1
    assert judged(p, q, 0, 0.2501) == 0


def test_a_draft_at_least_as_likely_for_the_target_always_passes() -> None:
    highest = float(np.nextafter(np.float32(1), np.float32(0)))
    assert judged([0.5, 0.5], [0.5, 0.5], 0, highest) == 1
    assert judged([0.875, 0.125], [0.5, 0.5], 0, highest) == 1


def test_a_draft_the_target_excludes_never_passes() -> None:
    assert judged([0.0, 1.0], [0.5, 0.5], 0, 0.0) == 0


def test_a_uniform_equal_to_the_chance_rejects() -> None:
    chances = mx.array([[0.25, 0.0, 1.0]])
    for uniform, expected in ((0.25, [False, False, True]), (0.0, [True, False, True])):
        assert (mx.full((1, 3), uniform) < chances).tolist() == [expected]


@settings(deadline=None, max_examples=75, derandomize=True, database=None)
@given(
    st.lists(
        st.tuples(st.lists(st.booleans(), min_size=4, max_size=4), st.integers(0, 4)), min_size=1, max_size=5
    )
)
def test_acceptance_ends_at_the_first_failure_or_the_rows_own_length(
    rows: list[tuple[list[bool], int]],
) -> None:
    passed, lengths = [row for row, _ in rows], [length for _, length in rows]
    expected = [([*row[:length], False].index(False)) for row, length in rows]
    assert count_before_failure(mx.array(passed), mx.array(lengths)).tolist() == expected


def residual(p: list[float], q: list[float], accepted: int = 0) -> list[float]:
    law = residual_law(whole([[p, p]], [[q]], [[0]]), mx.ones((1, 2)), mx.array([accepted]), mx.array([1]))
    return [float(x) for x in law[0].tolist()]


def test_a_rejection_draws_from_what_p_has_beyond_q() -> None:
    assert residual([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]) == [0.25, 0.0, 0.0]


def test_after_all_drafts_the_bonus_comes_from_p_whole() -> None:
    assert residual([0.5, 0.25, 0.25], [0.25, 0.5, 0.25], accepted=1) == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    ("p", "q"),
    [([0.5, 0.5], [0.5, 0.5]), ([1.0], [1.0]), ([0.25, 0.75, 0.0], [0.25, 0.75, 0.5])],
    ids=["p equals q", "one token", "p inside q"],
)
def test_without_mass_beyond_q_the_correction_comes_from_p(p: list[float], q: list[float]) -> None:
    law = residual(p, q)
    assert law == p
    assert draw(only([law]), mx.array([0.999])).item() == max(i for i, mass in enumerate(p) if mass)


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(
    st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 4), st.floats(0, 1, exclude_max=True, width=32)
)
def test_any_p_and_q_give_numbers_and_a_token_that_p_allows(
    seed: int, size: int, depth: int, uniform: float
) -> None:
    rng = np.random.default_rng(seed)

    def law() -> np.ndarray:
        weights = rng.random(size) * rng.integers(0, 2, size)
        weights[rng.integers(size)] += 1e-3
        return (weights / weights.sum()).astype(np.float32)

    p, q = np.stack([law() for _ in range(depth + 1)])[None], np.zeros((1, depth, size), np.float32)
    for place in range(depth):
        q[0, place] = p[0, place] if rng.integers(2) else law()
    drafts = mx.array(rng.integers(0, size, (1, depth)), mx.int32)
    lengths = mx.array([depth])
    laws = whole(p, q, drafts)
    chances, weights = token_chances(laws)
    accepted = count_before_failure(uniform < chances, lengths)
    left = residual_law(laws, weights, accepted, lengths)
    token = draw(only(left), mx.array([uniform], mx.float32)).item()
    assert np.isfinite(np.array(chances)).all()
    assert np.isfinite(np.array(left)).all()
    assert p[0, accepted.item(), token] > 0


def uniforms_of(source: RoundUniforms, depth: int) -> list[list[float]]:
    law = only(mx.zeros((2, 3)))
    parts = [source.draft(step, law)[:, None] for step in range(depth)]
    return mx.concatenate(
        [*parts, source.accept(mx.zeros((2, depth))), source.final(law)[:, None]], axis=1
    ).tolist()


def test_uniforms_are_a_function_of_seed_and_round_alone() -> None:
    once, again = (uniforms_of(counted([7, 8], [3, 4]), 2) for _ in range(2))
    alone = [uniforms_of(counted([seed, 0], [index, 0]), 2)[0] for seed, index in ((7, 3), (8, 4))]
    assert once == again == alone
    assert len({number for row in once for number in row}) == 10
    other = uniforms_of(counted([7, 8], [4, 4]), 2)
    assert other[0] != once[0]
    assert other[1] == once[1]


def test_uniforms_lie_in_the_half_open_unit_interval_as_float32() -> None:
    drawn = np.concatenate([np.array(counted([seed], [0]).accept(mx.zeros((1, 50)))) for seed in range(40)])
    assert drawn.dtype == np.float32
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert abs(drawn.mean() - 0.5) < 0.03


def test_the_largest_seed_is_a_seed() -> None:
    assert counted([2**64 - 1], [2**63]).final(only(mx.zeros((1, 3)))).shape == (1,)
