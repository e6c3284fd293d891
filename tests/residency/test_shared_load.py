"""One pack is loaded once, whoever asks and by whatever name, and a load nobody wants any more ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.errors import DataLoss, FailedPrecondition, NotFound, Unavailable
from support.fake_residency import WAIT_S, Rig


def test_two_requests_for_a_loading_model_share_one_load(rig: Rig) -> None:
    rig.catalog.add("a")
    rig.loader.hold()
    first = rig.residency.acquire("a")
    assert rig.loader.begun.wait(WAIT_S)
    second = rig.residency.acquire("a")
    assert rig.states() == {"a": "loading"}
    rig.loader.gate.set()
    leases = first.result(WAIT_S), second.result(WAIT_S)
    assert leases[0].model is leases[1].model
    assert rig.loader.events == ["load a"]
    assert rig.residency.views()[0].in_use == 2


def test_name_path_and_link_mean_one_model(rig: Rig, tmp_path: Path) -> None:
    pack = rig.catalog.add("a")
    link = tmp_path / "link"
    link.symlink_to(pack.path)
    for name in ("a", str(pack.path), str(link)):
        rig.load(name)
    assert rig.loader.events == ["load a"]
    assert len(rig.residency.views()) == 1
    rig.residency.unload(str(link)).result(WAIT_S)
    assert rig.states() == {}


def test_everybody_who_waits_hears_the_progress(rig: Rig) -> None:
    rig.catalog.add("a")
    rig.loader.hold()
    early: list[tuple[int, int]] = []
    late: list[tuple[int, int]] = []
    first = rig.residency.acquire("a", progress=lambda *step: early.append(step))
    assert rig.loader.begun.wait(WAIT_S)
    second = rig.residency.acquire("a", progress=lambda *step: late.append(step))
    rig.loader.gate.set()
    first.result(WAIT_S)
    second.result(WAIT_S)
    assert early == [(0, 0), (1, 2), (2, 2)]
    assert late == [(1, 2), (2, 2)]


def test_a_load_goes_on_while_one_still_waits(rig: Rig) -> None:
    rig.catalog.add("a")
    rig.loader.hold()
    leaving, staying = rig.residency.acquire("a"), rig.residency.acquire("a")
    assert rig.loader.begun.wait(WAIT_S)
    assert leaving.cancel()
    rig.loader.gate.set()
    staying.result(WAIT_S)
    assert rig.residency.views()[0].in_use == 1


def test_a_load_that_nobody_waits_for_is_given_up(rig: Rig) -> None:
    rig.catalog.add("a")
    rig.catalog.add("b")
    rig.loader.hold()
    only = rig.residency.acquire("a")
    assert rig.loader.begun.wait(WAIT_S)
    assert only.cancel()
    rig.loader.begun.clear()
    other = rig.residency.acquire("b")
    assert rig.loader.begun.wait(WAIT_S), "the abandoned load still holds the worker"
    rig.loader.gate.set()
    other.result(WAIT_S)
    assert rig.states() == {"b": "ready"}


def test_a_failed_load_is_told_to_all_shown_and_tried_again(rig: Rig) -> None:
    rig.catalog.add("a")
    rig.loader.hold()
    rig.loader.fails = DataLoss("a file is damaged", "a", "pull it again")
    waiting = [rig.residency.acquire("a") for _ in range(2)]
    rig.loader.gate.set()
    for future in waiting:
        with pytest.raises(DataLoss):
            future.result(WAIT_S)
    assert rig.states() == {"a": "failed"}
    assert "damaged" in rig.residency.views()[0].error
    rig.loader.fails = None
    rig.load("a")
    assert rig.states() == {"a": "ready"}


def test_a_bug_while_loading_reaches_whoever_waits(rig: Rig) -> None:
    rig.catalog.add("a")
    rig.loader.fails = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        rig.residency.acquire("a").result(WAIT_S)
    rig.loader.fails = None
    rig.load("a")


def test_unknown_models_are_not_found(rig: Rig) -> None:
    with pytest.raises(NotFound):
        rig.residency.acquire("nowhere")


def test_closing_fails_who_waits_and_takes_no_more(rig: Rig) -> None:
    rig.catalog.add("a")
    rig.loader.hold()
    waiting = rig.residency.acquire("a")
    assert rig.loader.begun.wait(WAIT_S)
    rig.residency.close()
    with pytest.raises(Unavailable):
        waiting.result(WAIT_S)
    with pytest.raises(Unavailable):
        rig.residency.acquire("a")


def test_a_resident_model_is_not_silently_another_one(rig: Rig) -> None:
    """A model loaded with its head, or with one depth limit, is not what a differing load asked for."""
    rig.catalog.add("a")
    rig.load("a", depth_max=4)
    with pytest.raises(FailedPrecondition, match="with its head"):
        rig.residency.acquire("a", headless=True)
    with pytest.raises(FailedPrecondition, match="depth limit"):
        rig.residency.acquire("a", depth_max=2)
    rig.load("a", depth_max=4)
    assert rig.residency.views()[0].in_use == 0


def test_plain_decoding_spares_a_broken_head_and_keeps_a_whole_one(rig: Rig) -> None:
    rig.catalog.add("whole")
    rig.load("whole", plain=True)
    rig.catalog.add("broken")
    rig.catalog.whole = False
    rig.load("broken", plain=True)
    heads = {view.name: view.depth_max for view in rig.residency.views()}
    assert heads == {"whole": 8, "broken": 0}
