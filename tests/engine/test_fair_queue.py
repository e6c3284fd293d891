"""Clients take turns and nobody is forgotten, whatever comes, goes and is taken in between."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.scheduler import FairQueue


@dataclass(frozen=True)
class Asked:
    """A waiting request."""

    id: str
    client: str


def queue_of(*clients: str) -> FairQueue[Asked]:
    queue: FairQueue[Asked] = FairQueue(100)
    for place, client in enumerate(clients):
        queue.add(Asked(f"{client}{place}", client))
    return queue


def drained(queue: FairQueue[Asked]) -> list[str]:
    taken = []
    while (request := queue.take()) is not None:
        taken.append(request.id)
    return taken


def test_a_client_with_many_requests_does_not_make_others_wait() -> None:
    assert drained(queue_of("a", "a", "a", "b", "c", "b")) == ["a0", "b3", "c4", "a1", "b5", "a2"]


def test_a_client_that_comes_back_stands_at_the_end_of_the_line() -> None:
    queue = queue_of("a", "b")
    assert queue.take() == Asked("a0", "a")
    queue.add(Asked("a9", "a"))
    assert drained(queue) == ["b1", "a9"]


def test_a_removed_request_leaves_the_others_in_order() -> None:
    queue = queue_of("a", "b", "a")
    assert queue.remove("a0") == Asked("a0", "a")
    assert queue.remove("a0") is None
    assert drained(queue) == ["a2", "b1"]


def test_full_means_as_many_wait_as_the_limit_allows() -> None:
    queue: FairQueue[Asked] = FairQueue(2)
    queue.add(Asked("1", "a"))
    assert not queue.full
    queue.add(Asked("2", "b"))
    assert queue.full
    queue.take()
    assert not queue.full


steps = st.lists(st.one_of(st.sampled_from("abcd"), st.just("take"), st.integers(0, 30)), max_size=60)


@settings(deadline=None, max_examples=300, derandomize=True, database=None)
@given(steps)
def test_between_two_turns_of_a_client_every_other_waiting_client_has_one(script: list[str | int]) -> None:
    queue: FairQueue[Asked] = FairQueue(1000)
    waiting: dict[str, list[str]] = {}
    overtaken: dict[str, set[str]] = {}
    made = 0
    for step in script:
        if step == "take":
            foreseen = next(iter(queue), None)
            taken = queue.take()
            assert taken is foreseen
            if taken is None:
                assert not any(waiting.values())
                continue
            assert waiting[taken.client].pop(0) == taken.id
            for client, line in waiting.items():
                if line and client != taken.client:
                    assert taken.client not in overtaken.setdefault(client, set())
                    overtaken[client].add(taken.client)
            overtaken[taken.client] = set()
        elif isinstance(step, int):
            removed = queue.remove(str(step))
            lines = [line for line in waiting.values() if str(step) in line]
            assert (removed is not None) == bool(lines)
            for line in lines:
                line.remove(str(step))
        else:
            if not waiting.setdefault(step, []):
                overtaken[step] = set()
            waiting[step].append(str(made))
            queue.add(Asked(str(made), step))
            made += 1
        assert len(queue) == sum(map(len, waiting.values()))
    expected = [request.id for request in queue]
    assert drained(queue) == expected
