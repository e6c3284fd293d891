"""Clients share by work, classes by rank, and nobody is forgotten, whatever comes, goes, fits or does not."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.scheduling.accounts import DEPOSIT
from mtplxd.engine.scheduling.queue import OVERTAKES, RETRY_S, FairQueue
from mtplxd.errors import InvalidArgument, ResourceExhausted
from support.queueing import Asked, any_fits, drained, drained_some, queue_of


def test_a_client_with_many_requests_does_not_make_others_wait() -> None:
    assert drained(queue_of("a", "a", "a", "b", "c", "b"), 10.0) == ["a0", "b3", "c4", "a1", "b5", "a2"]


def test_many_places_at_once_are_dealt_round_before_anything_is_charged() -> None:
    queue = queue_of("a", "a", "a", "a", "b", "b")
    taken = [queue.take(any_fits, 0.0) for _ in range(4)]
    assert [request and request.id for request in taken] == ["a0", "b4", "a1", "b5"]


def test_one_huge_request_counts_as_many_small_ones() -> None:
    queue = queue_of("huge", "huge", *["tiny"] * 30)
    first = queue.take(any_fits, 0.0)
    assert first is not None
    queue.charge("huge", 1000.0)
    queue.done(first.id)
    started = []
    for _ in range(12):
        request = queue.take(any_fits, 0.0)
        assert request is not None
        queue.charge(request.client, 100.0)
        queue.done(request.id)
        started.append(request.client)
    assert started.count("huge") == 1
    assert started.index("huge") in (10, 11)


def test_a_newcomer_starts_level_and_neither_ahead_nor_behind() -> None:
    queue = queue_of(*["old"] * 50)
    queue.add(Asked("x", "other"), 0.0)
    for request in (queue.take(any_fits, 0.0) for _ in range(20)):
        assert request is not None
        queue.charge(request.client, 500.0)
        queue.done(request.id)
    for place in range(20):
        queue.add(Asked(f"n{place}", "new"), 0.0)
    counts: Counter[str] = Counter()
    for request in (queue.take(any_fits, 0.0) for _ in range(20)):
        assert request is not None
        counts[request.client] += 1
        queue.charge(request.client, 500.0)
        queue.done(request.id)
    assert abs(counts["new"] - counts["old"]) <= 2


def test_leaving_and_coming_back_does_not_wash_a_debt_away() -> None:
    queue = queue_of("a", *["b"] * 20)
    request = queue.take(any_fits, 0.0)
    assert request is not None
    assert request.client == "a"
    queue.charge("a", 3000.0)
    queue.done(request.id)
    queue.add(Asked("again", "a"), 0.0)
    assert drained(queue, 200.0).index("again") in (15, 16)  # 3000 are fifteen times 200


def test_work_done_while_nobody_waited_is_owed_to_nobody() -> None:
    queue = queue_of("a")
    request = queue.take(any_fits, 0.0)
    assert request is not None
    queue.charge("a", 1e6)
    queue.done(request.id)
    for place in range(4):
        queue.add(Asked(f"a{place}", "a"), 0.0)
        queue.add(Asked(f"b{place}", "b"), 0.0)
    assert [name[0] for name in drained(queue, 10.0)] == list("abababab")


def test_once_nobody_waits_debts_are_forgotten() -> None:
    queue = queue_of("a", "b")
    for work in (3000.0, 0.0):
        request = queue.take(any_fits, 0.0)
        assert request is not None
        queue.charge(request.client, work)
        queue.done(request.id)
    assert queue.empty
    for client in "abc":
        for place in range(2):
            queue.add(Asked(f"{client}{place}", client), 0.0)
    assert [name[0] for name in drained(queue, 10.0)] == list("abcabc")


def test_who_comes_back_has_saved_nothing_up() -> None:
    queue = queue_of("b", *["a"] * 20)
    assert drained_some(queue, 11, 200.0) == ["b0", *(f"a{place}" for place in range(1, 11))]
    for place in range(4):
        queue.add(Asked(f"again{place}", "b"), 0.0)
    assert sum(name.startswith("again") for name in drained_some(queue, 4, 200.0)) in (2, 3)


def test_a_big_request_is_not_starved_by_ever_new_clients() -> None:
    queue = queue_of("debtor", "x")
    request = queue.take(any_fits, 0.0)
    assert request is not None
    queue.charge("debtor", 2000.0)
    queue.done(request.id)
    queue.add(Asked("late", "debtor"), 0.0)
    for number in range(200):
        queue.add(Asked(f"n{number}", f"client{number}"), 0.0)
        taken = queue.take(any_fits, 0.0)
        assert taken is not None
        if taken.id == "late":
            return
        queue.charge(taken.client, 100.0)
        queue.done(taken.id)
    pytest.fail("newcomers went ahead for ever")


def test_a_full_queue_refuses_with_numbers_and_a_time() -> None:
    queue = queue_of("a", "b", limit=2)
    with pytest.raises(
        ResourceExhausted, match=r"queue is full \(2 of 2 places taken\): try again"
    ) as refused:
        queue.add(Asked("x", "c"), 0.0)
    assert RETRY_S[0] <= refused.value.retry_after_s <= RETRY_S[1]
    queue.take(any_fits, 0.0)
    queue.add(Asked("x", "c"), 0.0)


def test_a_client_that_floods_is_bounded_and_others_are_not() -> None:
    queue: FairQueue[Asked] = FairQueue(1000, client_limit=3)
    for number in range(3):
        queue.add(Asked(f"f{number}", "flood"), 0.0)
    for number in range(3, 1000):
        with pytest.raises(ResourceExhausted, match=r"one client wait \(3 of 3 places taken\)"):
            queue.add(Asked(f"f{number}", "flood"), 0.0)
    assert len(queue) == 3
    queue.add(Asked("x", "calm"), 0.0)
    queue.remove("f0")
    queue.add(Asked("again", "flood"), 0.0)


def test_the_time_to_retry_follows_the_pace_of_starts() -> None:
    queue = queue_of(*"abcdefgh", limit=8)
    for second in (0.0, 20.0, 40.0, 60.0):
        request = queue.take(any_fits, second)
        assert request is not None
        queue.done(request.id)
        queue.add(Asked(f"x{second}", "x"), second)
    with pytest.raises(ResourceExhausted) as refused:
        queue.add(Asked("y", "y"), 60.0)
    assert refused.value.retry_after_s == pytest.approx(20.0)


def test_the_same_request_sent_twice_is_refused_waiting_or_in_service() -> None:
    queue = queue_of("a")
    with pytest.raises(InvalidArgument, match="a0"):
        queue.add(Asked("a0", "b"), 0.0)
    queue.take(any_fits, 0.0)
    with pytest.raises(InvalidArgument, match="a0"):
        queue.add(Asked("a0", "b"), 0.0)
    queue.done("a0")
    queue.done("a0")
    queue.add(Asked("a0", "b"), 0.0)


def test_small_ones_pass_a_big_one_and_then_wait_for_it() -> None:
    queue: FairQueue[Asked] = FairQueue(100)
    queue.add(Asked("big", "a", size=10), 0.0)
    for number in range(20):
        queue.add(Asked(f"s{number}", "b"), 0.0)
    passed = []
    while (request := queue.take(lambda item: item.size <= 3, 0.0)) is not None:
        passed.append(request.id)
    assert len(passed) == OVERTAKES
    taken = queue.take(any_fits, 0.0)
    assert taken is not None
    assert taken.id == "big"
    assert queue.take(lambda item: item.size <= 3, 0.0) is not None


def test_deadlines_leave_the_line_whole() -> None:
    queue: FairQueue[Asked] = FairQueue(100)
    queue.add(Asked("late", "a", deadline=5.0), 0.0)
    queue.add(Asked("never", "a"), 0.0)
    queue.add(Asked("soon", "b", deadline=4.0), 0.0)
    assert queue.expire(3.9) == []
    assert {request.id for request in queue.expire(5.0)} == {"late", "soon"}
    assert [request.id for request in queue] == ["never"]


def test_found_removed_and_gone() -> None:
    queue = queue_of("a", "b", "a")
    assert queue.find("a2") == Asked("a2", "a")
    assert queue.remove("a0") == Asked("a0", "a")
    assert queue.remove("a0") is None
    assert queue.find("a0") is None
    assert drained(queue) == ["b1", "a2"]


def test_clients_that_went_are_forgotten() -> None:
    queue = queue_of("stays")
    for number in range(5000):
        client = f"client{number}"
        queue.add(Asked(client, client), 0.0)
        taken = queue.take(lambda item: item.client != "stays", 0.0) or queue.take(any_fits, 0.0)
        assert taken is not None
        queue.charge(taken.client, 1e6 + number)
        queue.done(taken.id)
        if taken.client == "stays":
            queue.add(Asked(f"stays{number}", "stays"), 0.0)
    assert len(queue.accounts) < 1100


actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abcd"), st.booleans(), st.integers(1, 10)),
        st.tuples(st.just("take"), st.integers(0, 10)),
        st.tuples(st.just("done"), st.integers(0, 30), st.integers(0, 2000)),
        st.tuples(st.just("remove"), st.integers(0, 60)),
        st.tuples(st.just("pass"), st.integers(0, 20)),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=150, derandomize=True, database=None)
@given(actions, st.integers(1, 8), st.integers(1, 20))
def test_bounds_hold_and_nothing_is_lost_or_doubled(
    script: list[tuple[object, ...]], client_limit: int, limit: int
) -> None:
    queue: FairQueue[Asked] = FairQueue(limit, client_limit)
    waiting: dict[str, Asked] = {}
    serving: dict[str, Asked] = {}
    made, now = 0, 0.0
    for action, *args in script:
        if action == "add":
            client, background, size = args
            asked = Asked(str(made), str(client), "background" if background else "interactive", None, size)  # type: ignore[arg-type]
            made += 1
            own = sum(item.client == client for item in waiting.values())
            if own >= client_limit or len(waiting) >= limit:
                with pytest.raises(ResourceExhausted):
                    queue.add(asked, now)
            else:
                queue.add(asked, now)
                waiting[asked.id] = asked
        elif action == "take":
            room = args[0]
            taken = queue.take(lambda item: item.size <= room, now)  # type: ignore[operator]  # noqa: B023
            if taken is not None:
                assert taken.size <= room  # type: ignore[operator]
                serving[taken.id] = waiting.pop(taken.id)
        elif action == "done" and serving:
            name = sorted(serving)[args[0] % len(serving)]  # type: ignore[operator]
            queue.charge(serving.pop(name).client, float(args[1]))  # type: ignore[arg-type]
            queue.done(name)
        elif action == "remove":
            assert queue.remove(str(args[0])) == waiting.pop(str(args[0]), None)
        elif action == "pass":
            now += float(args[0])  # type: ignore[arg-type]
        assert len(queue) == len(waiting)
        assert sorted(item.id for item in queue) == sorted(waiting)
        assert len(queue.accounts) <= 4
    while waiting:
        taken = queue.take(any_fits, now)
        assert taken is not None
        del waiting[taken.id]
    assert queue.take(any_fits, now) is None


@settings(deadline=None, max_examples=100, derandomize=True, database=None)
@given(
    st.lists(st.integers(1, 3000), min_size=2, max_size=6),
    st.integers(1, 16),
    st.integers(0, 2**31),
)
def test_clients_that_always_wait_get_equal_work_whatever_their_requests_cost(
    costs: list[int], places: int, seed: int
) -> None:
    """Each client's requests cost what is its own; at every moment no two differ by more than what is in service."""
    queue: FairQueue[Asked] = FairQueue(10_000)
    for client in range(len(costs)):
        for number in range(400):
            queue.add(Asked(f"{client}.{number}", str(client)), 0.0)
    served: Counter[str] = Counter()
    serving: list[list[object]] = []
    pieces = 0
    state = seed
    while all(queue.accounts._waiting.get(str(client)) for client in range(len(costs))) and pieces < 600:
        while len(serving) < places:
            request = queue.take(any_fits, 0.0)
            assert request is not None
            serving.append([request, costs[int(request.client)]])
        state = (state * 1103515245 + 12345) % 2**31
        piece = serving[state % len(serving)]
        request, left = piece
        assert isinstance(request, Asked)
        assert isinstance(left, int)
        work = min(left, 250)
        queue.charge(request.client, float(work))
        served[request.client] += work
        piece[1] = left - work
        pieces += 1
        if piece[1] == 0:
            serving.remove(piece)
            queue.done(request.id)
    bound = (places + 1) * (max(costs) + DEPOSIT)
    shares = [served[str(client)] for client in range(len(costs))]
    assert max(shares) - min(shares) <= bound
