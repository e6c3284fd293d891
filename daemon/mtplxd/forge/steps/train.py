"""Step `train`: a new head for a body without one, or the one that is there trained further."""

from __future__ import annotations

from pathlib import Path

from mtplxd.forge.assembling import assemble_pack
from mtplxd.forge.steps.inspect import has_head
from mtplxd.forge.work import Json, Lost, Made, Step, Work

FAILED = "training_failed"


def _inputs(work: Work) -> Json:
    return {
        "body": work.product("convert"),
        "head": work.product("extract"),
        "fed": work.result("calibrate").get("settings", {}),
        "training": work.recipe.training.document(),
        "quick": work.recipe.quick,
    }


def _make(work: Work, layer: Path) -> Made:
    options = work.recipe.training
    plan = work.parts.plan_training(
        method=options.method,
        quick=work.recipe.quick,
        tokens=options.tokens or None,
        steps=options.steps or None,
        prompts=work.run.prompts,
        seed=options.seed,
    )
    train = work.parts.fine_tune_head if has_head(work) else work.parts.train_new_head
    found = train(assemble_pack(work), layer, plan, work.tell, work.cancelled, work.should_wait).document()
    if found["verdict"] == FAILED:
        raise Lost(FAILED, [found["reason"]], found)
    sidecar = layer / found["sidecar"]
    return Made(found, place=sidecar.parent, names=[sidecar.name])


TRAIN = Step("train", _inputs, _make, wanted=lambda work: work.recipe.train, resumes=True)
