"""A request's ticket hands on one terminal event and nothing after it, and remembers why it ended."""

from __future__ import annotations

import time

import pytest
from mtplxd.engine.events import Progress, Text
from mtplxd.engine.ticket import Ticket
from mtplxd.families.load import LoadedModel
from support.listening import Listener, ask


@pytest.fixture
def listener() -> Listener:
    return Listener()


def test_nothing_follows_the_end(tiny_model: LoadedModel, listener: Listener) -> None:
    ticket = Ticket(ask(tiny_model, [5, 6]), listener)
    ticket.send(Text("a", (9,)))
    ticket.end("error", "internal", "what happened")
    ticket.end("cancelled", "shutdown")
    ticket.send(Progress("queue", 0, 1))
    assert listener.events == [Text("a", (9,)), listener.finished]
    assert (listener.finished.finish_reason, listener.finished.completion_tokens) == ("error", 1)


def test_the_state_follows_the_events(tiny_model: LoadedModel, listener: Listener) -> None:
    ticket = Ticket(ask(tiny_model, [5, 6], id="one"), listener)
    assert ticket.describe("another").waits_for == "another"
    states = [ticket.state]
    ticket.send(Text("a", (9, 10)))
    states.append(ticket.state)
    assert ticket.describe("").completion_tokens == 2
    ticket.end("stop", "eos")
    assert [*states, ticket.state] == ["queue", "decode", "done"]


def test_a_cancel_that_came_first_outlives_the_deadline(tiny_model: LoadedModel, listener: Listener) -> None:
    late = ask(tiny_model, [5], deadline=time.monotonic() - 1)
    assert Ticket(late, listener).poll() == "deadline"
    cancelled = Ticket(late, listener)
    cancelled.cancel("client")
    assert cancelled.poll() == "client"


def test_without_cancel_or_deadline_there_is_nothing_to_poll(
    tiny_model: LoadedModel, listener: Listener
) -> None:
    assert Ticket(ask(tiny_model, [5]), listener).poll() is None
    assert Ticket(ask(tiny_model, [5], deadline=time.monotonic() + 1e6), listener).poll() is None
