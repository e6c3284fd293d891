"""A declared setting changes on clear evidence only, each switch by itself; what is not clear is kept, and said."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.families.heads.row import SWITCHES, HeadSettings
from mtplxd.forge.calibration_choice import CLEAR_LEAD, MIN_PROMPTS, MIN_ROUNDS, Sample, choose, is_hopeless

RIGHT = HeadSettings()
WAYS = [HeadSettings(**dict(zip(SWITCHES, values, strict=True))) for values in product(*SWITCHES.values())]
COSTS = {"tap": 0.5, "recursion": 0.1, "concat": 1.5, "norm_convention": 1.9}
"""What each switch costs that is not as the head was trained, in tokens a round; recursion's is below what is clear."""


def test_what_counts_as_evidence_is_what_users_are_told() -> None:
    assert (MIN_PROMPTS, MIN_ROUNDS, CLEAR_LEAD) == (4, 48, 0.25)


def flipped(way: HeadSettings, *names: str) -> HeadSettings:
    return replace(
        way, **{name: next(v for v in SWITCHES[name] if v != getattr(way, name)) for name in names}
    )


def sample(tokens_per_round: float, prompts: int = 8, rounds: int = 50) -> Sample:
    """Rounds that come to this many tokens each, to the third digit or so."""
    each = max(0.0, tokens_per_round - 1)
    whole, count = int(each), prompts * rounds
    more = round((each - whole) * count)
    flat = [whole + 1] * more + [whole] * (count - more)
    return Sample(tuple(tuple(flat[at * rounds : (at + 1) * rounds]) for at in range(prompts)))


def table(best: float = 3.0, costs: dict[str, float] = COSTS, **shape: int) -> dict[HeadSettings, Sample]:
    """Every way's counts of a head that was trained to be fed as `RIGHT` is."""
    return {
        way: sample(
            max(
                1.0,
                best
                - sum(cost for name, cost in costs.items() if getattr(way, name) != getattr(RIGHT, name)),
            ),
            **shape,
        )
        for way in WAYS
    }


@pytest.mark.parametrize("name", [name for name, cost in COSTS.items() if cost >= CLEAR_LEAD])
def test_a_wrong_setting_whose_cost_is_clear_is_put_right(name: str) -> None:
    found = choose(flipped(RIGHT, name), table())
    assert (found.status, found.settings) == ("changed", RIGHT)
    [switch] = [one for one in found.switches if one.verdict == "changed"]
    assert (switch.name, switch.declared, switch.chosen) == (
        name, getattr(flipped(RIGHT, name), name), getattr(RIGHT, name)
    )  # fmt: skip
    assert switch.lead == pytest.approx(COSTS[name], abs=0.01)


def test_a_wrong_setting_whose_cost_is_not_clear_is_kept_and_said() -> None:
    wrong = flipped(RIGHT, "recursion")
    found = choose(wrong, table())
    assert (found.status, found.settings) == ("inconclusive", wrong)
    verdicts = {switch.name: switch.verdict for switch in found.switches}
    assert verdicts == {**dict.fromkeys(COSTS, "confirmed"), "recursion": "inconclusive"}


def test_several_wrong_settings_are_put_right_together() -> None:
    found = choose(flipped(RIGHT, "tap", "concat", "norm_convention"), table(4.9))
    assert found.settings == RIGHT
    assert {one.name for one in found.switches if one.verdict == "changed"} == {
        "tap",
        "concat",
        "norm_convention",
    }


def test_a_small_gain_does_not_come_along_with_a_large_one() -> None:
    declared = flipped(RIGHT, "tap", "recursion")
    assert choose(declared, table()).settings == flipped(RIGHT, "recursion")


def test_of_two_small_gains_the_smaller_one_is_given_up_first() -> None:
    """Alone each is too little; without the smaller one the other is enough."""
    declared = flipped(RIGHT, "tap", "recursion")
    rates = {RIGHT: 3.0, flipped(RIGHT, "tap"): 2.9, flipped(RIGHT, "recursion"): 2.8, declared: 2.6}
    counts = {way: sample(rates.get(way, 1.0), rounds=100) for way in WAYS}
    assert choose(declared, counts).settings == flipped(RIGHT, "tap")


@pytest.mark.parametrize(("ahead", "status"), [(0.1, "inconclusive"), (0.3, "changed")])
def test_two_switches_that_make_up_for_each_other_change_on_a_clear_lead_alone(
    ahead: float, status: str
) -> None:
    other = flipped(RIGHT, "tap", "norm_convention")
    costs = {RIGHT: ahead, other: 0.0}
    counted = {way: sample(3.0 - costs.get(way, 1.5)) for way in WAYS}
    found = choose(RIGHT, counted)
    assert (found.status, found.settings) == (status, RIGHT if status == "inconclusive" else other)
    verdicts = {switch.name: switch.verdict for switch in found.switches}
    assert verdicts == dict.fromkeys(SWITCHES, "confirmed") | dict.fromkeys(
        ("tap", "norm_convention"), status
    )


def test_where_everything_is_clear_the_declared_way_is_confirmed() -> None:
    found = choose(RIGHT, table(costs={**COSTS, "recursion": 0.3}))
    assert (found.status, found.settings) == ("confirmed", RIGHT)
    assert all(switch.verdict == "confirmed" for switch in found.switches)


def test_exactly_the_clear_lead_is_enough_and_less_is_not() -> None:
    wrong = flipped(RIGHT, "tap")
    assert choose(wrong, table(costs={"tap": CLEAR_LEAD}, rounds=100)).settings == RIGHT
    assert choose(wrong, table(costs={"tap": CLEAR_LEAD - 0.01}, rounds=100)).settings == wrong


@pytest.mark.parametrize(
    ("prompts", "rounds", "enough"),
    [
        (MIN_PROMPTS - 1, 100, False),
        (MIN_PROMPTS, MIN_ROUNDS // MIN_PROMPTS, True),
        (MIN_PROMPTS, MIN_ROUNDS // MIN_PROMPTS - 1, False),
        (1, 1000, False),
    ],
)
def test_without_enough_prompts_and_rounds_nothing_changes(prompts: int, rounds: int, enough: bool) -> None:
    wrong = flipped(RIGHT, "concat")
    found = choose(wrong, table(prompts=prompts, rounds=rounds))
    assert found.settings == (RIGHT if enough else wrong)
    assert found.status == ("changed" if enough else "inconclusive")


def test_one_way_with_too_few_rounds_is_no_evidence_against_another() -> None:
    wrong = flipped(RIGHT, "tap")
    counts = {**table(), wrong: sample(2.5, prompts=3)}
    found = choose(wrong, counts)
    assert found.settings == wrong
    assert {one.name: one.verdict for one in found.switches}["tap"] == "inconclusive"


@pytest.mark.parametrize("share", [0.0, 0.02, 0.05])
def test_a_head_that_nothing_is_accepted_of_fails(share: float) -> None:
    found = choose(RIGHT, {way: sample(1 + share, rounds=100) for way in WAYS})
    assert (found.status, found.settings, found.switches) == ("calibration_failed", RIGHT, ())


def test_a_head_with_some_accepted_in_one_way_does_not_fail() -> None:
    counts = {way: sample(1.0) for way in WAYS} | {flipped(RIGHT, "tap"): sample(1.06, rounds=100)}
    assert choose(RIGHT, counts).status == "inconclusive"


def test_equal_ways_stay_as_declared() -> None:
    for declared in WAYS:
        assert choose(declared, {way: sample(2.0) for way in WAYS}).settings == declared


def test_a_switch_that_this_head_has_not_is_not_judged() -> None:
    ways = [way for way in WAYS if way.recursion == "post"]
    found = choose(RIGHT, {way: table()[way] for way in ways})
    assert {switch.name for switch in found.switches} == {"tap", "concat", "norm_convention"}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(1.0, 4.0), min_size=len(WAYS), max_size=len(WAYS)),
    st.sampled_from(WAYS),
)
def test_whatever_is_counted_every_change_is_worth_a_clear_lead_by_itself(
    rates: list[float], declared: HeadSettings
) -> None:
    counts = {way: sample(rate, rounds=100) for way, rate in zip(WAYS, rates, strict=True)}
    found = choose(declared, counts)
    if found.settings != declared:
        lead = counts[found.settings].tokens_per_round - counts[declared].tokens_per_round
        assert lead >= CLEAR_LEAD
    for name in SWITCHES:
        if getattr(found.settings, name) != getattr(declared, name):
            lead = (
                counts[found.settings].tokens_per_round
                - counts[flipped(found.settings, name)].tokens_per_round
            )
            assert lead >= CLEAR_LEAD


def test_ways_are_compared_along_the_texts_that_both_were_tried_on() -> None:
    easy, hard = (3,) * 20, (0,) * 20
    long = Sample((easy,) * 8 + (hard,) * 8)
    short = Sample(((2,) * 20,) * 8)
    ways = {RIGHT: long, flipped(RIGHT, "tap"): short}
    assert short.tokens_per_round > long.tokens_per_round
    [switch] = choose(RIGHT, ways).switches
    assert (switch.verdict, switch.lead) == ("confirmed", 1.0)


@pytest.mark.parametrize(
    ("rate", "prompts", "rounds", "left"),
    [(1.9, 8, 10, True), (2.0, 8, 10, False), (1.5, 7, 100, False), (1.0, 8, 5, False), (1.0, 16, 64, True)],
)
def test_a_way_is_left_only_when_it_is_far_behind(rate: float, prompts: int, rounds: int, left: bool) -> None:
    assert is_hopeless(sample(rate, prompts, rounds), sample(3.0, 16)) is left
    assert not is_hopeless(sample(rate, prompts, rounds), None)


def test_counts_come_to_tokens_a_round_and_acceptance_by_position() -> None:
    counted = Sample(((3, 0, 1), (2, 0)))
    assert counted.count == 5
    assert counted.tokens_per_round == pytest.approx(1 + 6 / 5)
    assert counted.acceptance(3) == pytest.approx([3 / 5, 2 / 5, 1 / 5])
