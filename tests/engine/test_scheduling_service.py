"""Queue, admission, preemption and turns together: memory holds and everybody ends, whoever comes and goes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.scheduling.admission import HEADROOM
from mtplxd.engine.scheduling.preemption import PROGRESS
from mtplxd.engine.scheduling.queue import BACKGROUND, PATIENCE_S
from support.scheduling_sim import FOOT, ROUND_S, Job, Sim, refused

STEP = 256 * FOOT.position + FOOT.row


def ends(sim: Sim) -> dict[str, str]:
    return {job.id: job.end for job in sim.log}


def test_rows_that_grow_together_beyond_memory_all_come_to_their_end() -> None:
    """Each is let in by its headroom; all of them at full length would not fit."""
    sim = Sim(budget=2 * 4 * STEP, max_rows=8)
    for number in range(6):
        sim.submit(Job(str(number), "c", 100, 900))
    sim.run()
    assert set(ends(sim).values()) == {"length"}
    assert any(job.times_aside for job in sim.log)
    assert sim.log[0].id == "0"


def test_a_row_is_never_set_aside_again_before_it_made_progress() -> None:
    sim = Sim(budget=2 * 4 * STEP, max_rows=8)
    for number in range(6):
        sim.submit(Job(str(number), "c", 100, 900))
    out: dict[str, int] = {}
    while not sim.idle:
        before = {job.id for job in sim.aside}
        sim.step()
        for job in sim.aside:
            if job.id not in before:
                assert job.made - out.get(job.id, -PROGRESS) >= PROGRESS
                out[job.id] = job.made


def test_a_request_without_an_end_that_outgrows_all_memory_ends_alone() -> None:
    sim = Sim(budget=4 * STEP, max_rows=8)
    sim.submit(Job("endless", "a", 100, 4096))
    for number in range(4):
        sim.submit(Job(str(number), "b", 50, 200))
    sim.run()
    found = ends(sim)
    assert found.pop("endless") == "memory"
    assert set(found.values()) == {"length"}


def test_a_big_request_comes_in_while_small_ones_never_stop() -> None:
    sim = Sim(budget=5 * STEP, max_rows=8)
    sim.submit(Job("s", "small", 50, 50))
    sim.submit(Job("big", "big", 800, 200))
    for number in range(400):
        sim.submit(Job(f"s{number}", f"small{number % 5}", 50, 50))
    sim.run()
    order = [job.id for job in sim.log]
    assert ends(sim)["big"] == "length"
    assert order.index("big") < 60


def test_an_interactive_request_does_not_wait_for_background_rows_to_end() -> None:
    sim = Sim(budget=10**6, max_rows=2)
    for number in range(4):
        sim.submit(Job(f"b{number}", "nightly", 50, 2000, BACKGROUND))
    for _ in range(100):
        sim.step()
    sim.submit(Job("i", "chat", 50, 50))
    came = sim.now
    sim.run(lambda: any(job.id == "i" for job in sim.log))
    [job] = [job for job in sim.log if job.id == "i"]
    assert job.began is not None
    assert job.began - came <= 3 * ROUND_S
    assert not any(job.background for job in sim.log)
    sim.run()
    assert set(ends(sim).values()) == {"length"}


def test_background_comes_to_its_end_under_a_flood_of_interactive_requests() -> None:
    sim = Sim(budget=10**6, max_rows=2)
    for number in range(3):
        sim.submit(Job(f"b{number}", "nightly", 50, 300, BACKGROUND))
    made = 0
    while sim.now < 5000 and sum(job.background for job in sim.log) < 3:
        while sum(not job.background for job in sim.queue) < 4:
            sim.submit(Job(f"i{made}", f"chat{made % 4}", 50, 50))
            made += 1
        sim.step()
    assert sum(job.background for job in sim.log) == 3
    served = sum(job.tokens for job in sim.log if job.background)
    assert served < 0.5 * sum(job.tokens for job in sim.log)
    assert sim.now > PATIENCE_S


def test_a_client_that_floods_gets_no_more_than_its_share() -> None:
    sim = Sim(budget=10**7, max_rows=4)
    for number in range(1000):
        sim.submit(Job(f"f{number}", "flood", 10, 10))
    for number in range(60):
        sim.submit(Job(f"h{number}", "huge", 1000, 500))
    for number in range(100):
        sim.submit(Job(f"n{number}", "normal", 50, 100))
    clients = ("flood", "huge", "normal")
    while all(any(job.client == client for job in sim.queue) for client in clients):
        sim.step()
    shares = [sim.work[client] for client in clients]
    assert min(shares) > 5000
    assert max(shares) - min(shares) <= 4 * (1500 + 256)


arrivals = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from("abc"),
        st.integers(2, 1500),
        st.one_of(st.integers(1, 400), st.just(5000)),
        st.booleans(),
        st.booleans(),
        st.one_of(st.none(), st.integers(0, 60)),
    ),
    min_size=1,
    max_size=16,
)
cancels = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 15)), max_size=6)


@settings(deadline=None, max_examples=75, derandomize=True, database=None)
@given(arrivals, cancels, st.integers(1, 40), st.integers(1, 6))
def test_memory_holds_and_everybody_ends_whoever_comes_and_goes(
    coming: list[tuple[int, str, int, int, bool, bool, int | None]],
    leaving: list[tuple[int, int]],
    steps_of_memory: int,
    max_rows: int,
) -> None:
    sim = Sim(budget=steps_of_memory * STEP, max_rows=max_rows, limit=12, client_limit=6)
    accepted: set[str] = set()
    line = sorted(enumerate(coming), key=lambda entry: entry[1][0])
    turn = 0
    while line or not sim.idle:
        while line and line[0][1][0] <= turn:
            number, (_, client, prompt, tokens, background, solo, deadline) = line.pop(0)
            ends_at = None if deadline is None else sim.now + deadline
            priority = BACKGROUND if background else "interactive"
            job = Job(str(number), client, prompt, tokens, priority, ends_at, solo)
            if not refused(sim, job):
                accepted.add(job.id)
        for when, name in leaving:
            if when == turn:
                sim.cancel(str(name))
        sim.step()
        turn += 1
        assert turn < 200_000
    assert sorted(ends(sim)) == sorted(accepted)
    assert len(sim.log) == len(accepted)
    for job in sim.log:
        if job.end == "memory":  # only who asked for no end, or who was bounded by nothing else
            assert job.tokens >= HEADROOM
            assert job.tokens == 5000
