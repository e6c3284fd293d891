"""Forges the small trained checkpoints, each as published and with each setting declared wrong, and measures the packs.

    python tests/bench/forged_zoo.py --prompts 20

A pack is made by the build's own steps: convert, extract, calibrate, and what calibration found written down. Fails
where a pack forged as published has not the acceptance that `expected.json` states (within 0.03), where a wrong setting
that costs 0.25 tokens a round or more there is not put right, or where a cheaper one is changed to a wrong one.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from harness import Journal, Sample, run
from mtplxd.families.heads.row import SWITCHES
from mtplxd.families.load import load_model
from mtplxd.forge.calibrating import calibrate
from mtplxd.forge.calibration_choice import CLEAR_LEAD
from mtplxd.forge.contract import record_calibration
from mtplxd.packs.manifest import FORMAT, Manifest, write_manifest
from mtplxd.packs.pack import read_pack
from support import zoo
from support.forging import forge, never, silent
from zoo_rows import Rows, measure_rows


def sample(name: str, wrong: str | None, prompts: list[list[int]]) -> Sample:
    """One pack: what calibration said, how its head is fed then, and what of its drafts is accepted."""
    with tempfile.TemporaryDirectory() as folder:
        source, pack = Path(folder, "source"), Path(folder, "pack")
        shutil.copytree(zoo.ZOO / name, source)
        if wrong is not None:
            declared = {wrong: zoo.OTHER[wrong][zoo.right_settings(name)[wrong]]}
            write_manifest(source, Manifest({"mtplxd": {"format": FORMAT, "head": declared}}))
        forge(source, pack)
        found = calibrate(pack, silent, never)
        record_calibration(pack, found.document())
        model = load_model(read_pack(pack), depth_max=zoo.DEPTH)
        tally = zoo.measure(model, prompts)
        switches = {one.name: [one.verdict, one.lead] for one in found.switches}
    return {
        "status": found.status,
        "switches": switches,
        "right": dict(found.settings) == zoo.right_settings(name),
        "kept": found.settings == found.declared,
        "rounds": tally.rounds,
        "acceptance": [round(share, 4) for share in tally.acceptance],
    }


def judge(name: str, wrong: str | None, found: Sample) -> dict[str, Any]:
    """What was found beside what the checkpoint's file states."""
    expected = zoo.expected_of(name)
    stated = expected["correct"]
    cost = 0.0
    if wrong is not None:
        cost = stated["tokens_per_round"] - expected["wrong"][zoo.STATED[wrong]]["tokens_per_round"]
    if not found["right"]:
        stated = expected["wrong"][zoo.STATED[wrong]] if wrong else stated
    pairs = zip(found["acceptance"], stated["acceptance"], strict=True)
    apart = max(abs(one - other) for one, other in pairs)
    decided = found["right"] if wrong is None or cost >= CLEAR_LEAD else found["status"] == "inconclusive"
    return {
        **found,
        "cost": round(cost, 3),
        "stated": stated["acceptance"],
        "apart": round(apart, 4),
        "passed": bool(decided and apart <= zoo.TOLERANCE),
    }


def rows_of(name: str, prompts: list[list[int]], journal: Journal) -> Rows:
    """As published, and with each setting declared wrong."""
    for wrong in (None, *SWITCHES):
        key = f"{name} {wrong or 'as published'}"
        yield key, judge(name, wrong, journal.take(key, partial(sample, name, wrong, prompts)))


if __name__ == "__main__":
    run(partial(measure_rows, "forged_zoo", __doc__, rows_of))
