"""Prompts that begin alike wait for the first of them, where that is worth it, and for nobody who will not come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from mtplxd.engine.batch import open_batch
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.prefixes import Prefixes, Sought
from mtplxd.engine.request import Request
from mtplxd.engine.sharing import Asked, Wait, common_length, whom_to_wait_for
from mtplxd.families.load import LoadedModel
from support.prefixes import BLOCK, ask, differences, prefixes, read_alone, table_model, tokens_of

LONG = tokens_of(400, 3, vocab=50)


def asked(id: str, prompt: Sequence[int], done: int = 0, *, begun: bool = False, **more: Any) -> Asked:
    return Asked(id, "model", prompt, done, begun, **more)


def beginning(count: int, length: int, seed: int = 7) -> list[int]:
    """As LONG for `count` tokens, then otherwise."""
    return [*LONG[:count], 99, *tokens_of(length - count - 1, seed, vocab=50)]


def waits(*them: Asked) -> dict[str, Wait]:
    return whom_to_wait_for(them, BLOCK)


@pytest.mark.parametrize("seed", range(30))
def test_the_common_length_is_what_counting_finds(seed: int) -> None:
    draw = random.Random(seed)
    one = [draw.randrange(3) for _ in range(draw.randrange(200))]
    other = [*one[: draw.randrange(200)], *[draw.randrange(3) for _ in range(draw.randrange(50))]]
    for most in (0, 1, 7, 64, 500):
        count = 0
        while count < min(most, len(one), len(other)) and one[count] == other[count]:
            count += 1
        assert common_length(one, other, most) == count


def test_the_same_prompt_waits_for_all_the_first_one_reads() -> None:
    them = [asked(name, LONG) for name in "abcd"]
    expected = Wait("a", len(LONG) - 1)
    assert waits(*them) == {"b": expected, "c": expected, "d": expected}
    assert waits(asked("a", LONG, 256, begun=True), *them[1:]) == {
        "b": expected,
        "c": expected,
        "d": expected,
    }


@pytest.mark.parametrize("length", [2, 17, 40, 64, 65])
def test_a_short_prompt_sent_twice_waits_too_since_nothing_is_left_to_read(length: int) -> None:
    found = waits(asked("a", LONG[:length], begun=True), asked("b", LONG[:length]))
    assert found == {"b": Wait("a", length - 1)}
    assert waits(asked("a", LONG, 384, begun=True), asked("b", LONG, 384)) == {"b": Wait("a", 399)}


def test_a_prompt_of_one_token_has_nothing_to_wait_for() -> None:
    assert waits(asked("a", LONG[:1], begun=True), asked("b", LONG[:1])) == {}


@pytest.mark.parametrize(("common", "until"), [(63, 0), (64, 64), (127, 64), (128, 128), (300, 256)])
def test_those_that_part_wait_for_the_last_whole_block_before(common: int, until: int) -> None:
    found = waits(asked("a", LONG, begun=True), asked("b", beginning(common, 350)))
    assert found == ({"b": Wait("a", until)} if until else {})


def test_one_that_goes_on_behind_the_others_end_waits_for_all_of_it() -> None:
    assert waits(asked("a", LONG[:200]), asked("b", LONG)) == {"b": Wait("a", 199)}
    assert waits(asked("a", LONG[:200]), asked("b", LONG, whole=True)) == {"b": Wait("a", 192)}
    assert waits(asked("a", LONG), asked("b", LONG[:200])) == {"b": Wait("a", 192)}


def test_the_last_token_is_never_waited_for() -> None:
    assert waits(asked("a", LONG, begun=True), asked("b", LONG[:129])) == {"b": Wait("a", 128)}
    assert waits(asked("a", LONG, begun=True), asked("b", LONG[:128])) == {"b": Wait("a", 64)}


@pytest.mark.parametrize(
    ("known", "waiting"), [(0, True), (64, True), (128, True), (192, False), (256, False)]
)
def test_what_is_kept_already_is_not_waited_for(known: int, waiting: bool) -> None:
    leader = asked("a", LONG, 0, begun=True)
    follower = asked("b", beginning(200, 350), known)
    assert ("b" in waits(leader, follower)) is waiting


@pytest.mark.parametrize(
    ("done", "waiting"), [(0, True), (64, True), (191, True), (192, False), (300, False)]
)
def test_one_that_is_past_it_is_not_waited_for(done: int, waiting: bool) -> None:
    """What it read lies where others find it, or was not kept."""
    assert ("b" in waits(asked("a", LONG, done, begun=True), asked("b", beginning(200, 350)))) is waiting


@pytest.mark.parametrize(("keeps", "until"), [(None, 192), (192, 192), (128, 128), (64, 64), (0, 0)])
def test_nobody_waits_for_what_will_not_be_kept(keeps: int | None, until: int) -> None:
    found = waits(asked("a", LONG, begun=True, keeps=keeps), asked("b", beginning(200, 350)))
    assert found == ({"b": Wait("a", until)} if until else {})


def test_who_has_begun_never_waits() -> None:
    assert waits(asked("a", LONG, begun=True), asked("b", LONG, begun=True)) == {}


def test_only_those_share_that_compute_alike() -> None:
    leader = asked("a", LONG, begun=True)
    assert waits(leader, replace(asked("b", LONG), group="other")) == {}
    assert waits(replace(leader, drafts=False), asked("b", LONG)) == {}
    assert waits(replace(leader, drafts=False), asked("b", LONG, drafts=False)) == {"b": Wait("a", 399)}
    assert waits(leader, asked("b", LONG, drafts=False)) == {"b": Wait("a", 399)}


def test_the_longest_in_common_is_waited_for_the_earliest_of_equals() -> None:
    them = (
        asked("a", beginning(130, 300), begun=True),
        asked("b", beginning(260, 300), begun=True),
        asked("c", beginning(260, 300, seed=8), begun=True),
    )
    assert waits(*them, asked("d", LONG)) == {"d": Wait("b", 256)}


def test_who_is_cancelled_frees_those_who_waited() -> None:
    first, *others = (asked(name, LONG) for name in "abc")
    assert set(waits(first, *others)) == {"b", "c"}
    assert waits(*others) == {"c": Wait("b", 399)}


@pytest.mark.parametrize("seed", range(60))
def test_whoever_comes_and_goes_nobody_waits_in_a_ring(seed: int) -> None:
    """All wait for earlier ones only, so that the first of any set goes on; every prompt is read in the end."""
    draw, service, turns = random.Random(seed), [], 0
    for number in range(12):
        base = beginning(draw.randrange(250), 300, draw.randrange(3)) if draw.random() < 0.5 else LONG
        service.append(asked(str(number), base[: draw.randrange(20, 300)], drafts=draw.random() < 0.7))
    while service:
        turns += 1
        assert turns < 200
        found = whom_to_wait_for(service, BLOCK)
        order = [one.id for one in service]
        assert all(order.index(wait.leader) < order.index(name) for name, wait in found.items())
        free = [one for one in service if one.id not in found]
        assert service[0] in free
        one = draw.choice(free)
        service[service.index(one)] = replace(one, begun=True, done=min(one.done + 64, one.total))
        service = [
            one for one in service if not (one.begun and one.done >= one.total) and draw.random() > 0.02
        ]


@dataclass
class Reading:
    """A request in a service small enough to see through: one chunk a turn, those who wait begin when they may."""

    request: Request
    sought: Sought
    prefill: Prefill | None = None


def serve(
    shared: Prefixes, requests: Sequence[Request], cancel: dict[int, str] | None = None
) -> list[Reading]:
    """All of them to their ends; `cancel` takes requests out before a turn."""
    service = [Reading(request, shared.seek(request)) for request in requests]
    for turn in range(200):
        gone = (cancel or {}).get(turn)
        service = [one for one in service if one.request.id != gone]
        found = whom_to_wait_for([one.sought.asked(one.prefill) for one in service], shared.block)
        for one in service:
            if one.prefill is None and one.request.id not in found:
                one.prefill = one.sought.begin(open_batch(one.request))
        leaders = {one.request.id: one for one in service}
        for wait in found.values():
            if (prefill := leaders[wait.leader].prefill) is not None:
                prefill.marks.add(wait.until)
        running = [one.prefill for one in service if one.prefill and not one.prefill.finished]
        if running:
            min(running, key=lambda prefill: prefill.total - prefill.done).step(64)
        elif all(one.prefill for one in service):
            return service
    raise AssertionError("somebody waits for ever")


@pytest.fixture
def model() -> LoadedModel:
    return table_model(vocab=100)


def positions_run(model: LoadedModel) -> int:
    return sum(model.target.counts)  # type: ignore[attr-defined]


def assert_as_alone(service: Sequence[Reading]) -> None:
    for one in service:
        assert one.prefill is not None
        assert differences(one.prefill.batch, read_alone(one.request)) == []


def test_eight_of_one_prompt_are_read_once(model: LoadedModel) -> None:
    shared, _ = prefixes()
    service = serve(shared, [ask(model, LONG) for _ in range(8)])
    assert positions_run(model) == 399
    assert [one.prefill.begin for one in service if one.prefill] == [0] + [399] * 7
    assert_as_alone(service)


def test_those_that_share_a_beginning_read_it_once(model: LoadedModel) -> None:
    shared, _ = prefixes()
    service = serve(shared, [ask(model, beginning(200, 300, seed)) for seed in range(4)])
    assert positions_run(model) == 299 + 3 * (299 - 192)
    assert_as_alone(service)


@pytest.mark.parametrize("turn", [0, 1, 2, 3, 4, 5, 6])
def test_a_leader_cancelled_at_any_turn_leaves_nobody_waiting(model: LoadedModel, turn: int) -> None:
    shared, _ = prefixes()
    requests = [ask(model, LONG) for _ in range(4)]
    service = serve(shared, requests, cancel={turn: requests[0].id})
    assert len(service) == 3
    assert positions_run(model) == 399  # what the one that left had read stays
    assert_as_alone(service)


def test_without_room_nobody_waits_and_all_are_read(model: LoadedModel) -> None:
    for limit in (0, 3000):
        shared, _ = prefixes(limit)
        service = serve(shared, [ask(model, LONG) for _ in range(3)])
        assert_as_alone(service)


def test_reproducible_ones_plain_ones_and_others_wait_for_their_like(model: LoadedModel) -> None:
    shared, _ = prefixes()
    kinds: list[dict[str, Any]] = [{"reproducible": True}, {}, {"depth": 0}]
    requests = [ask(model, LONG, **kind) for kind in (*kinds, *kinds)]
    service = serve(shared, requests)
    begins = [one.prefill.begin for one in service if one.prefill]
    assert begins == [0, 0, 399, 384, 399, 399]
    assert_as_alone(service)
