"""Step `convert`: the body as the recipe wants it, and how near it stays to the source on text neither was made for."""

from __future__ import annotations

from pathlib import Path

from mtplxd.config import resolve_settings
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.widths import packs
from mtplxd.forge.work import Json, Lost, Made, Step, Work
from mtplxd.packs.machine import total_memory
from mtplxd.packs.memory import budget_bytes

FAILED = "quality_failed"


def _inputs(work: Work) -> Json:
    recipe = work.recipe
    body = [recipe.body_bits, recipe.group_size, recipe.dtype, dict(recipe.overrides), recipe.quality_floor]
    return {"source": work.product("fetch"), "body": body}


def _make(work: Work, layer: Path) -> Made:
    recipe, parts, source = work.recipe, work.parts, work.place("fetch")
    plan = parts.plan_body(
        bits=recipe.body_bits,
        group_size=recipe.group_size,
        dtype=recipe.dtype,
        overrides=dict(recipe.overrides),
        memory=budget_bytes(total_memory(), resolve_settings(work.home).memory_budget),
    )
    conversion = parts.convert(source, layer, plan, work.tell, work.cancelled).document()
    lossless = bool(conversion["lossless"])
    quality = None
    if not lossless:
        texts = parts.held_out_texts()
        quality = parts.measure_quality(source, layer, texts, work.tell, work.cancelled)
    found = {**conversion, "quality": quality.document() if quality else None}
    if reason := parts.judge_quality(quality, _floor(recipe), lossless):
        raise Lost(FAILED, [reason], found)
    return Made(found)


def _floor(recipe: BuildRecipe) -> float:
    """None of a body that is bf16's rounding away from its source: it is told what that cost, and not judged by it."""
    rounded = not packs(recipe.body_bits) and recipe.dtype != "f16"
    return 0.0 if rounded else recipe.quality_floor


CONVERT = Step("convert", _inputs, _make)
