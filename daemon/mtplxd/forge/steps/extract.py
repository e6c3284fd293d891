"""Step `extract`: the head into a file of its own."""

from __future__ import annotations

from pathlib import Path

from mtplxd.forge.steps.inspect import has_head
from mtplxd.forge.work import Json, Made, Step, Work


def _inputs(work: Work) -> Json:
    recipe = work.recipe
    return {"source": work.product("fetch"), "head": [recipe.head_bits, recipe.allow_degraded_head]}


def _make(work: Work, layer: Path) -> Made:
    recipe = work.recipe
    extraction = work.parts.extract(
        work.place("fetch"), layer, recipe.head_bits, recipe.allow_degraded_head, work.tell, work.cancelled
    )
    return Made(extraction.document())


EXTRACT = Step("extract", _inputs, _make, wanted=has_head)
