"""One answer at a time in a session, in the order of asking, whoever leaves in between."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from mtplxd.store.claims import Claim, Claims, give_up

WAIT_S = 30.0


def test_the_first_has_it_at_once_and_others_follow_in_order() -> None:
    claims = Claims()
    asked = [claims.ask("work") for _ in range(3)]
    assert [future.done() for future in asked] == [True, False, False]
    for place, future in enumerate(asked):
        claim = future.result(WAIT_S)
        assert claim.name == "work"
        assert claims.busy("work")
        claim.release()
        assert [later.done() for later in asked[place + 1 :]] == [True, False, False][: 2 - place]
    assert not claims.busy("work")


def test_names_are_apart() -> None:
    claims = Claims()
    assert claims.ask("a").done()
    assert claims.ask("b").done()


def test_it_is_taken_only_where_nobody_has_it_or_waits() -> None:
    claims = Claims()
    claim = claims.take("work")
    assert claim is not None
    assert claims.take("work") is None
    claim.release()
    second = claims.take("work")
    assert second is not None
    claim.release()
    assert claims.take("work") is None, "a claim that was given back releases nobody else's"
    second.release()
    assert claims.take("work") is not None


def test_who_left_is_passed_over() -> None:
    claims = Claims()
    first, left, last = (claims.ask("work") for _ in range(3))
    give_up(left)
    first.result().release()
    assert left.cancelled()
    assert last.result(WAIT_S).name == "work"


def test_who_leaves_after_it_got_the_claim_gives_it_back() -> None:
    claims = Claims()
    give_up(claims.ask("work"))
    assert not claims.busy("work")


def test_all_leaving_frees_it() -> None:
    claims = Claims()
    first, *others = (claims.ask("work") for _ in range(3))
    for future in others:
        give_up(future)
    first.result().release()
    assert not claims.busy("work")


def test_of_many_threads_one_is_in_at_a_time() -> None:
    claims, inside, most = Claims(), [0], [0]
    turns: list[int] = []

    def work(number: int) -> None:
        asked: Future[Claim] = claims.ask("work")
        claim = asked.result(WAIT_S)
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        turns.append(number)
        inside[0] -= 1
        claim.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert (sorted(turns), most) == (list(range(40)), [1])
    assert not claims.busy("work")
