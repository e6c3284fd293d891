"""Fine-tunings small enough for a test: a zoo checkpoint, a few rows of its own text, a few updates."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from mtplxd.families.load import load_model
from mtplxd.forge.fine_tuning import FineTuning
from mtplxd.forge.pacing import Pace
from mtplxd.forge.prompt_file import ask_from
from mtplxd.forge.rollout import Plan
from mtplxd.forge.sizing import Sizes, Tuning, weights_for
from mtplxd.forge.trainer import Schedule
from mtplxd.forge.training import Training
from mtplxd.packs.pack import read_pack
from support import zoo
from support.cut_short import PROMPTS, SIDECAR

SIZES = Sizes(tokens=2560, steps=12, rows=16, length=80, batch=8, held_out=6)
Tell = Callable[[str, int, int, str], None]


def settle(method: str = "full", steps: int = 12, peak: float = 1e-3, depths: int = 2) -> Tuning:
    """All of a small tuning."""
    schedule = Schedule(
        steps=steps, rows=SIZES.batch, warmup=2, peak=peak, decay=0.0, depth_weights=weights_for(depths)
    )
    return Tuning(
        method=method,  # type: ignore[arg-type]
        sizes=SIZES,
        schedule=schedule,
        plan=Plan(length=SIZES.length),
        rank=8 if method == "lora" else 0,
        places=400,
        raw=True,
    )


def tune(pack: Path, run: Path, tuning: Tuning, pace: Pace | None = None) -> Training:
    """Loads the pack and runs the tuning, or what of it is left."""
    model = load_model(read_pack(pack))
    return FineTuning(run, model, tuning, ask_from(list(PROMPTS)), pace or Pace(lambda *_: None)).execute()


def with_trained(pack: Path, run: Path, training: Training, folder: Path) -> Path:
    """A copy of the pack that has the trained head."""
    shutil.copytree(pack, folder)
    shutil.copy(run / training.sidecar, folder / SIDECAR)
    return folder


def tokens_a_round(folder: Path, name: str, prompts: int = 6) -> float:
    """By the zoo's own protocol, over its first prompts."""
    model = load_model(read_pack(folder), depth_max=zoo.DEPTH)
    asked = [prompt["tokens"] for prompt in zoo.expected_of(name)["prompts"]]
    return zoo.measure(model, asked[:prompts]).tokens_per_round
