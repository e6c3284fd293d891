"""The order of a build's steps, and the rule by which a finished one is not run again: same inputs, product intact.

Knows no step's work. Whoever runs it holds the run's lock: the worker for most steps, the daemon for the others.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mtplxd.forge.digest import digest_of
from mtplxd.forge.marks import list_files, mark_files, unchanged
from mtplxd.forge.work import Lost, Made, Step, Work

ORDER = ("fetch", "inspect", "convert", "extract", "calibrate", "train", "measure", "verify", "seal")
Clock = Callable[[], float]
"""Seconds since 1970."""


def run_steps(work: Work, steps: Sequence[Step], clock: Clock) -> Work:
    """Runs what of these is not finished, in their order; the work with the state that they leave.

    Each is recorded before it begins and once its product is read back. A step that ends without a win records its
    verdict and ends the run. Raises what a step raises; then its record says that it was begun, and it begins again.
    """
    for step in steps:
        if work.state.verdict:
            break
        if step.wanted(work):
            work = _run_step(work, step, clock)
    return work


def _run_step(work: Work, step: Step, clock: Clock) -> Work:
    inputs = digest_of(step.inputs(work))
    if is_finished(work, step, inputs):
        return work
    layer = _empty_layer(work, step, inputs)
    work = _record(work, work.state.begin_step(step.name, inputs, clock()))
    try:
        made = step.make(_before(work, step), layer)
        place, marks = _read_back(work, made, layer)
    except Lost as lost:
        lost_state = work.state.lose_step(step.name, lost.verdict, lost.reasons, lost.result, clock())
        return _record(work, lost_state)
    return _record(work, work.state.finish_step(step.name, made.result, str(place), marks, clock()))


def _before(work: Work, step: Step) -> Work:
    """As a step sees it: what later steps once found, of other products than there are now, is not there."""
    later = ORDER[ORDER.index(step.name) + 1 :] if step.name in ORDER else ()
    kept = {name: record for name, record in work.state.steps.items() if name not in later}
    return replace(work, state=replace(work.state, steps=kept))


def _empty_layer(work: Work, step: Step, inputs: str) -> Path:
    """The step's own folder; what an interrupted one left stays where it can go on with that."""
    before, layer = work.state.record(step.name), work.run.layer(step.name)
    if not (step.resumes and before and before.inputs == inputs):
        shutil.rmtree(layer, ignore_errors=True)
    layer.mkdir(exist_ok=True)
    return layer


def is_finished(work: Work, step: Step, inputs: str) -> bool:
    """Whether a step is done, of these inputs, and its product as it was."""
    record = work.state.record(step.name)
    if record is None or not record.done or record.inputs != inputs:
        return False
    return (unchanged(Path(record.place), record.files) and step.holds(work)) or step.spent(work)


def _read_back(work: Work, made: Made, layer: Path) -> tuple[Path, dict[str, Any]]:
    place = made.place or layer
    names = list_files(place) if made.names is None else made.names
    return place, mark_files(place, names, work.cancelled, made.known)


def _record(work: Work, state: Any) -> Work:
    work.run.write(state)
    return replace(work, state=state)
