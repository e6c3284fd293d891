"""Background requests wait for interactive ones, get turns of their own, and keep what they start in one."""

from __future__ import annotations

from itertools import pairwise

from mtplxd.engine.scheduling.queue import AHEAD, OVERTAKES, PATIENCE_S, FairQueue
from support.queueing import Asked, any_fits, drained


def test_interactive_goes_before_background_of_whatever_client() -> None:
    queue: FairQueue[Asked] = FairQueue(100)
    queue.add(Asked("b0", "a", "background"), 0.0)
    queue.add(Asked("b1", "b", "background"), 0.0)
    queue.add(Asked("i0", "a"), 0.0)
    assert [request.id for request in queue] == ["i0", "b0", "b1"]
    assert drained(queue)[0] == "i0"


def test_background_gets_a_turn_under_a_flood_but_no_more_than_its_share() -> None:
    queue: FairQueue[Asked] = FairQueue(10_000)
    for number in range(50):
        queue.add(Asked(f"b{number}", "nightly", "background"), 0.0)
    started: list[tuple[float, str]] = []
    for second in range(200):
        queue.add(Asked(f"i{second}", f"chat{second % 3}"), float(second))
        queue.add(Asked(f"j{second}", f"chat{second % 3}"), float(second))
        request = queue.take(any_fits, float(second))
        assert request is not None
        queue.charge(request.client, 10.0)
        queue.done(request.id)
        started.append((float(second), request.priority))
    turns = [second for second, priority in started if priority == "background"]
    assert turns[0] <= PATIENCE_S + AHEAD
    gaps = [later - earlier for earlier, later in pairwise(turns)]
    assert max(gaps) <= PATIENCE_S + 1
    assert len(turns) <= 200 / PATIENCE_S + 1


def test_background_waits_for_interactive_ones_before_its_turn_even_after_its_patience() -> None:
    queue: FairQueue[Asked] = FairQueue(100)
    queue.add(Asked("b", "nightly", "background"), 0.0)
    for number in range(10):
        queue.add(Asked(f"i{number}", "chat"), 0.0)
    order = []
    while (request := queue.take(any_fits, 1000.0)) is not None:
        order.append(request.id)
    assert order.index("b") == AHEAD


def test_what_started_in_backgrounds_own_turn_is_owed_its_place_until_it_ends() -> None:
    queue: FairQueue[Asked] = FairQueue(100)
    queue.add(Asked("early", "nightly", "background"), 0.0)
    early = queue.take(any_fits, 1000.0)  # nobody went ahead: no turn of its own
    assert early is not None
    assert not queue.owed("early")
    queue.add(Asked("b", "nightly", "background"), 1000.0)
    for number in range(AHEAD + 1):
        queue.add(Asked(f"i{number}", "chat"), 1000.0)
    taken = [queue.take(any_fits, 1000.0) for _ in range(AHEAD)]
    assert [request.id for request in taken if request] == [f"i{number}" for number in range(AHEAD)]
    due = 1000.0 + PATIENCE_S
    in_turn, after = queue.take(any_fits, due), queue.take(any_fits, due)
    assert in_turn is not None
    assert after is not None
    assert (in_turn.id, after.id) == ("b", f"i{AHEAD}")
    assert [queue.owed(name) for name in ("b", "early", "i0", after.id, "nobody")] == [True, *[False] * 4]
    queue.done("b")
    assert not queue.owed("b")


def test_an_interactive_request_that_starts_for_want_of_room_in_backgrounds_turn_is_owed_nothing() -> None:
    queue: FairQueue[Asked] = FairQueue(100)
    queue.add(Asked("big", "nightly", "background", size=10), 0.0)
    for number in range(AHEAD + 1):
        queue.add(Asked(f"i{number}", "chat"), 0.0)
    for number in range(AHEAD + 1):
        request = queue.take(lambda item: item.size <= 3, 1000.0)
        assert request is not None
        assert request.id == f"i{number}"
        assert not queue.owed(request.id)


def test_a_big_background_request_does_not_hold_interactive_ones_up_before_its_turn() -> None:
    queue: FairQueue[Asked] = FairQueue(100)
    queue.add(Asked("big", "a", "background", size=10), 0.0)
    for number in range(5 * OVERTAKES):
        queue.add(Asked(f"i{number}", "b"), 0.0)
        assert queue.take(lambda item: item.size <= 3, 1.0) is not None
    queue.add(Asked("j", "b"), 1.0)
    taken = queue.take(any_fits, 1.0)
    assert taken is not None
    assert taken.id == "j"


def test_a_big_background_request_is_waited_for_once_its_turn_was_passed_over_often_enough() -> None:
    queue: FairQueue[Asked] = FairQueue(100)
    queue.add(Asked("big", "a", "background", size=10), 0.0)
    taken = []
    for number in range(40):
        queue.add(Asked(f"i{number}", "b"), float(number))
        if (request := queue.take(lambda item: item.size <= 3, float(number))) is not None:
            taken.append(request.id)
    assert PATIENCE_S <= len(taken) <= PATIENCE_S + OVERTAKES
    last = queue.take(any_fits, 40.0)
    assert last is not None
    assert last.id == "big"
