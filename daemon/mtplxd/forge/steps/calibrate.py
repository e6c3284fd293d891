"""Step `calibrate`: how the head must be fed, by what the body itself says next."""

from __future__ import annotations

from pathlib import Path

from mtplxd.forge.assembling import assemble_pack
from mtplxd.forge.steps.inspect import has_head
from mtplxd.forge.work import Json, Lost, Made, Step, Work

FAILED = "calibration_failed"


def _inputs(work: Work) -> Json:
    return {"body": work.product("convert"), "head": work.product("extract")}


def _make(work: Work, layer: Path) -> Made:  # noqa: ARG001 - it makes no file
    found = work.parts.calibrate(assemble_pack(work), work.tell, work.cancelled).document()
    if found["status"] == FAILED:
        raise Lost(FAILED, [found["message"]], found)
    return Made(found, names=())


CALIBRATE = Step("calibrate", _inputs, _make, wanted=has_head)
