"""Two or three rows in one round, unlike in everything: each has its own plain law, whatever its neighbours do.

A sample that is quick; `make proof-engine` takes more tokens and more neighbours.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mtplxd.engine.request import BLOCK
from mtplxd.platform.mlx import mx
from support.enumeration import Enumeration, Problem
from support.exact_float64 import use_exact_exponentials
from support.proof_cases import (
    ALL_FILTERS,
    BOUND_FLOAT32,
    BOUND_FLOAT64,
    COMPANIES,
    PAIRS,
    REDUCED,
    enumerable,
    fixed,
    plain_law,
)
from support.reference_laws import total_variation
from support.row_proof import Company, joint_law
from support.table_model import TableHead, TableTarget

HORIZON = 3
PLACES = [
    (name, place)
    for name, make in COMPANIES.items()
    for place, problem in enumerate(make(TableTarget()))
    if enumerable(problem)
]


@pytest.fixture(autouse=True)
def _exact_exponentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_exact_exponentials(monkeypatch)


def company(name: str, place: int, turn: int, dtype: object = None, seed: int = 21) -> Company:
    target = TableTarget(dtype=dtype or mx.float64, seed=seed)
    head = TableHead(target, REDUCED, seed=seed + 1)
    return Company(target, head, HORIZON, problems=COMPANIES[name](target), place=place, turn=turn)


def distance(model: Company) -> float:
    """Total variation of the enumerated row's law from plain decoding's."""
    return total_variation(model.law(), plain_law(model.target, model.problems[model.place], HORIZON))


@pytest.mark.parametrize(("number", "name", "place"), [(number, *one) for number, one in enumerate(PLACES)])
def test_each_row_has_its_plain_law_whatever_its_neighbours_do(number: int, name: str, place: int) -> None:
    assert distance(company(name, place, number % 2)) <= BOUND_FLOAT64


@pytest.mark.parametrize(("name", "place"), PLACES[::3])
def test_float32_keeps_each_rows_law_within_its_own_precision(name: str, place: int) -> None:
    assert distance(company(name, place, 0, mx.float32)) <= BOUND_FLOAT32


@pytest.mark.parametrize(("name", "place"), PLACES[::4])
def test_drafts_that_end_where_a_heads_numbers_do_keep_each_rows_law(name: str, place: int) -> None:
    model = company(name, place, 2)
    model.head = TableHead(model.target, REDUCED, seed=22, gaps=0.3)
    assert distance(model) <= BOUND_FLOAT64


def test_neighbours_accept_none_some_and_all_of_their_drafts_and_differ_in_depth() -> None:
    seen: set[tuple[int, int]] = set()
    for turn in range(4):
        model = company("token, block and a race", 0, turn)
        model.law()
        seen |= {(drafts, accepted) for _, drafts, accepted in model.seen}
    assert {(2, 0), (2, 1), (2, 2), (3, 0), (3, 3), (0, 0)} <= seen


@pytest.mark.parametrize("name", COMPANIES)
def test_the_rows_of_a_company_have_laws_that_tell_them_apart(name: str) -> None:
    """Else a row that took its neighbour's sampler would pass."""
    target = TableTarget(dtype=mx.float64, seed=21)
    problems = COMPANIES[name](target)
    own = [plain_law(target, problem, 2) for problem in problems]
    for b, problem in enumerate(problems):
        other = replace(problem, sampler=problems[(b + 1) % len(problems)].sampler)
        assert total_variation(own[b], plain_law(target, other, 2)) > 1e-3


@pytest.mark.parametrize("name", PAIRS)
def test_two_rows_together_have_the_product_of_their_plain_laws(name: str) -> None:
    """Nothing left out: all outcomes of one row beside all of the other."""
    target = TableTarget(dtype=mx.float64, seed=23)
    model = Enumeration(target, TableHead(target, (0, 2), seed=24), horizon=2)
    expected = np.multiply.outer(*(plain_law(target, problem, 2) for problem in PAIRS[name]))
    assert total_variation(joint_law(model, PAIRS[name]), expected) <= BOUND_FLOAT64


def test_a_row_beside_two_that_are_its_equals_keeps_its_law() -> None:
    target = TableTarget(dtype=mx.float64, seed=25)
    one = Problem((1, 2), replace(ALL_FILTERS, acceptance=BLOCK), fixed(2))
    model = Company(target, TableHead(target, REDUCED, seed=26), HORIZON, problems=[one] * 3, place=1)
    assert distance(model) <= BOUND_FLOAT64
