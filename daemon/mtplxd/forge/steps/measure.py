"""Steps `measure` and `verify`: what the daemon's engine says of the pack before it may be one."""

from __future__ import annotations

from pathlib import Path

from mtplxd.forge.assembling import LAYERS, assemble_pack
from mtplxd.forge.state import WON
from mtplxd.forge.work import EngineSteps, Json, Lost, Made, Step, Work

UNPROVEN = "quality_failed"


def _pack_inputs(work: Work) -> Json:
    fed = work.result("calibrate").get("settings", {})
    return {"files": {step: work.product(step) for step in LAYERS}, "fed": fed}


def _measure_inputs(work: Work) -> Json:
    return {
        **_pack_inputs(work),
        "depths": [*work.recipe.depths, work.recipe.auto],
        "quick": work.recipe.quick,
    }


def _measure(work: Work, layer: Path) -> Made:  # noqa: ARG001 - it makes no file
    found = _engine(work).measure(assemble_pack(work), work.recipe, work.tell, work.cancelled)
    if found["verdict"] != WON:
        raise Lost(found["verdict"], [found["message"]], found)
    return Made(found, names=())


def _verify(work: Work, layer: Path) -> Made:  # noqa: ARG001
    found = _engine(work).verify(assemble_pack(work), work.recipe, work.tell, work.cancelled)
    if not found["passed"]:
        raise Lost(UNPROVEN, found["failures"], found)
    return Made(found, names=())


def _engine(work: Work) -> EngineSteps:
    assert work.engine is not None, "only the daemon measures and verifies"
    return work.engine


MEASURE = Step("measure", _measure_inputs, _measure)
VERIFY = Step("verify", _pack_inputs, _verify)
