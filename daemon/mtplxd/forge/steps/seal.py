"""Step `seal`: the pack takes its place."""

from __future__ import annotations

from pathlib import Path

from mtplxd.forge.sealing import is_sealed, seal_pack
from mtplxd.forge.work import Json, Made, Step, Work


def _inputs(work: Work) -> Json:
    done = ("convert", "extract", "calibrate", "train", "measure", "verify")
    return {step: record.inputs for step in done if (record := work.state.record(step))}


def _make(work: Work, layer: Path) -> Made:  # noqa: ARG001 - what it makes is the pack
    work.tell("seal", 0, 1, "")
    return Made(seal_pack(work), names=())


def _holds(work: Work) -> bool:
    return is_sealed(work.run, work.home.packs / work.recipe.name)


SEAL = Step("seal", _inputs, _make, holds=_holds)
