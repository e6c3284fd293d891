"""Rows of unequal length share forwards in every family: what each gets is what it gets alone.

Rows come from prefills of their own, keep what they accept, join and leave; one is as short as a text can be.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from mtplxd.families.caches import PairCache, StateCache, WindowCache
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.families.load_body import open_body
from mtplxd.packs.pack import read_pack
from support.bodies import OTHERS, write_body
from support.crowd import Crowd
from support.families import FAMILIES, write_checkpoint
from support.gemma_pair import write_pair
from support.latent_models import LATENT, make_model
from support.recurrent import CONFIGS, random_model
from support.steering import leaves

CHAINS = ("step3p5", "mimo_v2_flash")
RECURRENT = tuple(name for name in CONFIGS if name != "rwkv7")
"""Those whose state can be taken back."""


@cache
def opened(family: str, root: Path) -> LoadedModel:
    return load_model(read_pack(write_checkpoint(root / family, family)))


@cache
def body_of(family: str, root: Path) -> Any:
    """A body without a head: of another class, recurrent, or latent."""
    kind, _, name = family.partition(" ")
    if kind == "latent":
        return open_body(make_model(name), ())[0]
    if kind == "recurrent":
        return open_body(random_model(name), ())[0]
    return load_model(read_pack(write_body(root / f"body-{name}", OTHERS[name]))).target


BODIES = [
    *(f"other {name}" for name in OTHERS),
    *(f"recurrent {name}" for name in RECURRENT),
    *(f"latent {name}" for name in LATENT),
]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crowds")


@pytest.fixture(params=[*FAMILIES, *BODIES])
def crowd(request: pytest.FixtureRequest, root: Path) -> Crowd:
    """No rows yet, of each family with its head and of each body."""
    if request.param in FAMILIES:
        model = opened(request.param, root)
        return Crowd(model.target, model.head)
    return Crowd(body_of(request.param, root), None)


@pytest.fixture(params=[*FAMILIES[::2], *BODIES[::4]])
def some(request: pytest.FixtureRequest, root: Path) -> Crowd:
    """As `crowd`, of every kind of cache and not of every class that has it."""
    if request.param in FAMILIES:
        model = opened(request.param, root)
        return Crowd(model.target, model.head)
    return Crowd(body_of(request.param, root), None)


@pytest.fixture(params=FAMILIES)
def headed(request: pytest.FixtureRequest, root: Path) -> Crowd:
    """No rows yet, of each family with its head."""
    model = opened(request.param, root)
    return Crowd(model.target, model.head)


def test_rows_that_join_leave_and_accept_unequally_are_what_they_are_alone(crowd: Crowd) -> None:
    for length in (5, 37, 300):
        crowd.join(length)
    crowd.play(4, [1, 4, 2])
    crowd.play(1, [1, 1, 1])
    crowd.play(4, [2, 1, 3])
    crowd.join(1)
    crowd.play(2, [1, 2, 1, 2])
    crowd.leave(2)
    crowd.join(90)
    crowd.play(3, [3, 2, 1, 1])
    crowd.play(4, [4, 4, 4, 4])
    crowd.play(1, [1, 1, 1, 1])
    crowd.play(4, [1, 2, 3, 4])
    crowd.check_contents()
    crowd.leave(0)
    crowd.leave(0)
    crowd.play(4, [2, 1])
    crowd.leave(1)
    crowd.play(4, [3])
    crowd.check_contents()


def test_what_no_row_may_see_is_never_read(crowd: Crowd) -> None:
    for length in (290, 3, 41):
        crowd.join(length)
    for count, kept in ((4, [1, 4, 2]), (1, [1, 1, 1]), (2, [2, 1, 2])):
        crowd.spoil()
        crowd.play(count, kept)
    crowd.leave(0)
    crowd.spoil()
    crowd.play(4, [4, 1])
    crowd.check_contents()


def test_the_last_row_goes_on_alone_as_if_it_had_been_alone(some: Crowd) -> None:
    some.join(20)
    some.join(7)
    some.play(4, [2, 3])
    some.leave(0)
    for count, kept in ((4, 2), (1, 1), (3, 3), (2, 1)):
        some.play(count, [kept])
    some.check_contents()
    assert all(isinstance(layer.offset, int) for layer in some.cache)


def test_a_row_that_is_copied_goes_on_by_itself_and_so_does_the_row(some: Crowd) -> None:
    for length in (12, 280):
        some.join(length)
    some.play(4, [3, 2])
    copies = [some.copy(place) for place in range(2)]
    some.play(4, [1, 4])
    for copied in copies:
        copied.play(4, [2])
        copied.play(2, [2])
        copied.check_contents()
    some.play(1, [1, 1])
    some.check_contents()


def test_an_emptied_batch_holds_nothing_and_takes_rows_again(some: Crowd) -> None:
    some.join(30)
    some.join(4)
    some.play(4, [1, 2])
    some.leave(1)
    some.leave(0)
    assert sum(layer.nbytes for layer in (*some.cache, *some.head_cache)) == 0
    some.join(9)
    some.join(2)
    some.play(4, [4, 1])
    some.check_contents()


def test_rows_that_do_not_draft_this_round_lose_nothing(headed: Crowd) -> None:
    for length in (6, 50, 2):
        headed.join(length)
    headed.play(4, [2, 1, 3], idle=[1])
    headed.play(1, [1, 1, 1], depth=0)
    headed.play(2, [2, 2, 1], idle=[0, 2])
    headed.play(4, [1, 3, 2])
    headed.play(4, [1, 1, 1])
    headed.check_contents()


def test_a_row_whose_head_begins_anew_sits_beside_others(headed: Crowd) -> None:
    headed.join(40)
    headed.join(25, absorb=0)
    headed.join(33, absorb=1)
    headed.play(4, [2, 4, 1])
    headed.play(4, [1, 2, 2])
    headed.check_contents()


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("family", CHAINS)
def test_every_layer_of_a_chain_lags_by_its_number_in_each_row(family: str, depth: int, root: Path) -> None:
    model = opened(family, root)
    crowd = Crowd(model.target, model.head)
    for length in (1, 2, 3, 4, 30):
        crowd.join(length)
    for kept in ([1, 1, 1, 1, 1], [1, 1, 2, 1, 3], [1, 2, 1, 1, 1], [3, 1, 2, 4, 1]):
        crowd.play(4, kept, depth)
        for lag, layer in enumerate(crowd.head_cache):
            assert list(layer.lengths) == [max(0, member.pairs - lag) for member in crowd.members]
    crowd.leave(0)
    crowd.play(2, [1, 2, 2, 1], depth)
    crowd.check_contents()


@pytest.mark.parametrize("size", ["small", "large", "experts"])
def test_a_gemma_pair_drafts_for_each_row_from_its_own_slots(size: str, root: Path) -> None:
    write_pair(root / size, size, seed=3)
    model = load_model(read_pack(root / size))
    assert model.apart == ""
    crowd = Crowd(model.target, model.head)
    for length in (3, 60, 290):
        crowd.join(length)
    for kept in ([1, 2, 4], [3, 1, 1], [4, 4, 4]):
        crowd.play(4, kept)
    crowd.leave(1)
    crowd.join(17)
    crowd.play(4, [2, 1, 1])
    crowd.check_contents()


def test_every_kind_of_cache_takes_part_in_this(root: Path) -> None:
    caches = [layer for family in FAMILIES for layer in opened(family, root).target.make_cache(1)]
    kinds = {type(leaf) for layer in caches for leaf in leaves(layer)}
    pairs = {type(layer) for layer in opened("deepseek_v32", root).target.make_cache(1)}
    assert {StateCache, WindowCache} <= kinds
    assert pairs == {PairCache}


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_every_family_with_a_head_share_forwards(family: str, root: Path) -> None:
    assert opened(family, root).apart == ""


@pytest.mark.parametrize("family", BODIES)
def test_rows_of_every_body_share_forwards(family: str, root: Path) -> None:
    assert body_of(family, root).apart == ""
