"""The functions that a build is made of, as a table, so that a build can be run with others.

Each is imported when it is called: most need libraries that only a worker loads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

Part = Callable[..., Any]


@dataclass(frozen=True)
class Parts:
    """Each as its module documents it."""

    probe: Part
    probe_document: Part
    fetch: Part
    storage_faults: Part
    plan_body: Part
    convert: Part
    held_out_texts: Part
    measure_quality: Part
    judge_quality: Part
    extract: Part
    calibrate: Part
    record_calibration: Part
    plan_training: Part
    train_new_head: Part
    fine_tune_head: Part
    card_facts: Part
    draft_card: Part
    publish: Part


def _later(module: str, name: str) -> Part:
    def call(*args: Any, **named: Any) -> Any:
        return getattr(import_module(f"mtplxd.forge.{module}"), name)(*args, **named)

    return call


REAL = Parts(
    probe=_later("probing", "probe"),
    probe_document=_later("probing", "document"),
    fetch=_later("fetching", "fetch_source"),
    storage_faults=_later("storage", "storage_faults"),
    plan_body=_later("body_plan", "BodyPlan"),
    convert=_later("converting", "convert_body"),
    held_out_texts=_later("quality", "held_out_texts"),
    measure_quality=_later("quality", "measure_quality"),
    judge_quality=_later("quality", "judge_quality"),
    extract=_later("extracting", "extract_head"),
    calibrate=_later("calibrating", "calibrate"),
    record_calibration=_later("contract", "record_calibration"),
    plan_training=_later("train_plan", "TrainPlan"),
    train_new_head=_later("training_run", "train_new_head"),
    fine_tune_head=_later("training_run", "fine_tune_head"),
    card_facts=_later("card", "CardFacts"),
    draft_card=_later("card", "draft_card"),
    publish=_later("publishing", "publish"),
)
