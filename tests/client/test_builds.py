"""Builds through both clients: what streams say, what JSON holds, and what a client that leaves does not end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mtplx_client import AsyncClient, Client
from mtplx_client.builds import BuildOptions, BuildOutcome, BuildStep, Training
from mtplx_client.errors import InvalidArgument
from support.fake_builds import RUN, lost
from support.fake_daemon import FakeDaemon


def test_a_build_tells_its_steps_and_then_its_outcome(client: Client) -> None:
    *steps, outcome = client.build("org/model", "mine")
    assert all(isinstance(step, BuildStep) and step.run == RUN for step in steps)
    assert isinstance(outcome, BuildOutcome)
    assert (outcome.won, outcome.chosen, outcome.pack) == (True, 2, "mine")
    assert outcome.rows[1].ratio == 1.42
    assert outcome.machine is not None
    assert outcome.machine.chip == "Apple M4"
    assert outcome.details["head"] == {"tensors": 12}


def test_an_outcome_without_rows_or_a_win_is_whole_too(client: Client, daemon: FakeDaemon) -> None:
    daemon.outcome = lost("no_mtp_head")
    for name in ("rows", "machine", "drift", "details_json"):
        daemon.outcome.ClearField(name)
    outcome = [*client.resume_build("mine")][-1]
    assert isinstance(outcome, BuildOutcome)
    assert (outcome.won, outcome.chosen, outcome.machine, outcome.rows) == (False, None, None, ())
    assert outcome.details == {}


def test_auto_may_have_won(client: Client, daemon: FakeDaemon) -> None:
    assert daemon.outcome is not None
    daemon.outcome.ClearField("depth")
    daemon.outcome.auto = True
    outcome = [*client.follow_build()][-1]
    assert isinstance(outcome, BuildOutcome)
    assert outcome.chosen == "auto"


def test_a_client_that_leaves_asks_for_no_end(client: Client, daemon: FakeDaemon) -> None:
    daemon.outcome = None
    events = client.build(
        "org/model", "mine", BuildOptions(body_bits=4, overrides={"lm_head": 8}), detach=True
    )
    assert next(events).run == RUN
    events.close()
    assert [name for name, _ in daemon.asked if "Cancel" in name] == []
    (asked,) = daemon.requests("Build")
    assert (asked.body_bits, asked.overrides[0].layers, asked.overrides[0].bits, asked.detach) == (
        4, "lm_head", 8, True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (BuildOptions(body_bits=-1), "body_bits"),
        (BuildOptions(depths=(-1,)), "depths"),
        (BuildOptions(training=Training(seed=-1)), "seed"),
        (BuildOptions(overrides={"lm_head": 1 << 40}), "bits"),
    ],
)
def test_what_the_wire_cannot_carry_names_its_field(
    client: Client, options: BuildOptions, field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        next(client.build("org/model", "mine", options))
    assert caught.value.field == field


def test_both_clients_answer_alike(client: Client, daemon: FakeDaemon) -> None:
    async def ask() -> dict[str, Any]:
        async with AsyncClient(socket=daemon.socket) as other:
            return {
                "build": [event async for event in other.build("org/model", "mine")],
                "follow": [event async for event in other.follow_build("mine")],
                "resume": [event async for event in other.resume_build("mine")],
                "builds": await other.builds(),
                "cancel": await other.cancel_build("mine"),
                "probe": await other.probe("org/model"),
                "publish": await other.publish("mine", "ada/mine", dry_run=True),
            }

    assert asyncio.run(ask()) == {
        "build": [*client.build("org/model", "mine")],
        "follow": [*client.follow_build("mine")],
        "resume": [*client.resume_build("mine")],
        "builds": client.builds(),
        "cancel": client.cancel_build("mine"),
        "probe": client.probe("org/model"),
        "publish": client.publish("mine", "ada/mine", dry_run=True),
    }
