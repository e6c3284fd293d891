"""An appended-layer family from the Hub to its text: probed, built, measured, verified, tuned, and published as it is.

The model is a small trained one, the daemon and its workers are real, and so are the texts that are measured; what a
round takes is fixed, so that the verdict is not this machine's.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client
from mtplx_client.builds import BuildOptions, BuildOutcome, BuildStep
from mtplxd.packs.pack import read_pack
from mtplxd.packs.verified import fingerprint_of
from support.daemon_process import DaemonProcess, running_daemon, short_folder
from support.hub_server import HubServer
from support.zoo import ZOO

FAMILY = "glm4_moe_lite"
SOURCE, PUBLISHED = f"zoo/{FAMILY}", f"ada/{FAMILY}"
CARD = b"---\nlicense: apache-2.0\n---\nA small trained model.\n"
DEPTH = 2
"""At which it gains most: 2.5 tokens a round."""
STEPS = ["fetch", "inspect", "convert", "extract", "calibrate", "measure", "verify", "seal"]
Events = Generator[BuildStep | BuildOutcome, None, None]


@dataclass
class Made:
    """A pack that a daemon made of what a Hub had, and all that was said of it meanwhile."""

    hub: HubServer
    home: Path
    daemon: DaemonProcess
    client: Client
    probed: dict[str, Any]
    asked_to_probe: int
    outcome: BuildOutcome
    steps: list[str]


def follow(events: Events, steps: list[str]) -> BuildOutcome:
    """The outcome; the steps that were told of are added to `steps`."""
    for event in events:
        if isinstance(event, BuildOutcome):
            return event
        if event.step not in (*steps, "queue"):
            steps.append(event.step)
    raise AssertionError("the stream ended")


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    checkpoint = {file.name: file.read_bytes() for file in (ZOO / FAMILY).iterdir()}
    with short_folder() as folder, HubServer() as hub:
        hub.add(SOURCE, {**checkpoint, "README.md": CARD})
        environment = {
            "HF_ENDPOINT": hub.url,
            "HF_HUB_CACHE": str(folder / "hub"),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        with (
            running_daemon(folder, module=("support.steady_daemon",), **environment) as daemon,
            Client(socket=daemon.socket) as client,
        ):
            probed, sent = client.probe(SOURCE), hub.bytes_sent
            steps: list[str] = []
            options = BuildOptions(quick=True, depths=(DEPTH,))
            outcome = follow(client.build(SOURCE, "mine", options), steps)
            document = {**probed.document, "verdict": probed.verdict}
            yield Made(hub, folder, daemon, client, document, sent, outcome, steps)
            assert daemon.stop()[0] == 0
            assert "Traceback" not in daemon.log()


def test_a_model_of_the_hub_becomes_a_pack_that_answers_faster(made: Made) -> None:
    assert (made.probed["verdict"], made.probed["head"]["layout"]) == ("forgeable", "appended")
    assert made.asked_to_probe < made.probed["bytes_source"] / 10

    assert made.outcome.verdict == "depth_wins", made.outcome.message
    assert (made.steps, made.outcome.pack, made.outcome.depth) == (STEPS, "mine", DEPTH)
    [plain, deep] = made.outcome.rows
    assert (plain.depth, deep.depth, deep.ci95[0] > 1) == (0, DEPTH, True)
    assert made.outcome.details["calibration"]["status"] == "confirmed"
    assert made.outcome.details["sealed"]["tier"] == "verified"

    client = made.client
    [pack] = client.ls()
    assert (pack.name, pack.family, pack.tier) == ("mine", FAMILY, "verified")
    kept = client.tune("mine", quick=True, depths=(DEPTH,))
    assert kept.decision.chosen == DEPTH
    fingerprint = made.outcome.details["sealed"]["fingerprint"]
    assert (kept.fingerprint_body, kept.fingerprint_head) == (fingerprint["body"], fingerprint["head"])

    texts = [
        client.complete("def main():", model="mine", temperature=0.0, max_tokens=64, depth=depth)
        for depth in (None, 0)
    ]
    assert [one.stats.depth for one in texts] == [DEPTH, 0]
    assert texts[0].tokens == texts[1].tokens
    assert texts[0].stats.rounds < texts[1].stats.rounds


def test_what_is_published_comes_back_as_the_pack_it_was(made: Made) -> None:
    client, hub = made.client, made.hub
    mine = made.home / "packs" / "mine"
    client.publish("mine", PUBLISHED)
    sent = hub.repositories[PUBLISHED].revisions["main"].files
    assert {name: content.read(0, content.size) for name, content in sent.items() if name[0] != "."} == {
        file.name: file.read_bytes() for file in mine.iterdir()
    }
    assert client.probe(PUBLISHED).verdict == "already_a_pack"

    pulled = client.pull(PUBLISHED)
    assert (pulled.family, pulled.tier) == (FAMILY, "verified")
    stamp = fingerprint_of(read_pack(mine))
    assert fingerprint_of(read_pack(Path(pulled.path))) == stamp

    for event in client.build(PUBLISHED, "again"):
        assert isinstance(event, BuildStep)
        if event.step == "calibrate":  # put together, and not yet a pack
            break
    [run] = [one.run for one in client.builds() if one.name == "again"]
    assert fingerprint_of(read_pack(made.home / "runs" / run / "pack")) == stamp
    assert client.cancel_build(run).stopped
    assert [one.name for one in client.builds()] == ["mine"]
    assert "again" not in {one.name for one in client.ls()}
