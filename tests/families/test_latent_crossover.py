"""Which path is less work: counted product by product, and the lengths that published models change at."""

from __future__ import annotations

import itertools

import pytest
from mtplxd.families.latent.crossover import absorbing_pays

DEEPSEEK, FLASH = (512, 128 + 128), (512, 192 + 256)


def products_absorbed(length: int, slots: int, rank: int, width: int) -> int:
    into_and_out_of_the_latent = length * rank * width
    scores_and_sums = 2 * length * slots * rank
    return into_and_out_of_the_latent + scores_and_sums


def products_spread_out(length: int, slots: int, rank: int, width: int) -> int:
    spreading = slots * rank * width
    scores_and_sums = length * slots * width
    return spreading + scores_and_sums


@pytest.mark.parametrize(("rank", "width"), [DEEPSEEK, FLASH, (64, 56), (8, 40)])
def test_the_path_with_fewer_products_is_taken(rank: int, width: int) -> None:
    for length, slots in itertools.product(range(1, 400, 7), range(1, 6000, 97)):
        fewer = products_absorbed(length, slots, rank, width) < products_spread_out(
            length, slots, rank, width
        )
        assert absorbing_pays(length, slots, rank, width) == fewer


@pytest.mark.parametrize(
    ("sizes", "slots", "longest"),
    [(DEEPSEEK, 4096, 163), (FLASH, 4096, 362), (DEEPSEEK, 10**9, 170), (FLASH, 10**9, 398)],
)
def test_published_sizes_change_path_where_the_formula_says(
    sizes: tuple[int, int], slots: int, longest: int
) -> None:
    assert absorbing_pays(longest, slots, *sizes)
    assert not absorbing_pays(longest + 1, slots, *sizes)


@pytest.mark.parametrize("length", [1, 4, 16, 512, 4096])
def test_the_first_chunk_of_a_text_is_spread_out(length: int) -> None:
    assert not absorbing_pays(length, length, *DEEPSEEK)
    assert not absorbing_pays(length, length, *FLASH)


def test_a_latent_smaller_than_half_of_what_it_holds_is_always_absorbed() -> None:
    assert all(absorbing_pays(length, length, 8, 40) for length in (1, 64, 4096))
