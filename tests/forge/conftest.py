"""A tiny pack without a head, loaded once, and a recipe small enough to train in seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.forge.rollout import Plan
from mtplxd.forge.trainer import Schedule
from mtplxd.forge.training_run import Recipe
from mtplxd.packs.pack import read_pack
from support.tiny_pack import make_tiny_pack

TAPS = (2, 4)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_pack(tmp_path_factory.mktemp("packs") / "tiny", head=False)


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> LoadedModel:
    return load_model(read_pack(tiny_folder), plain=True)


@pytest.fixture
def make_recipe() -> Callable[..., Recipe]:
    def make(steps: int = 4, **changes: object) -> Recipe:
        plan = Plan(length=60, answer=(12, 24), question=10)
        schedule = Schedule(steps=steps, rows=2, warmup=2, rejection_from=0.3, rejection_full=0.6)
        settings = {"tokens": 480, "taps": TAPS, "mlp_width": 48, "draft_vocab": 120, "rows": 4, **changes}
        return Recipe(schedule=schedule, plan=plan, **settings)  # type: ignore[arg-type]

    return make


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.fixture
def make_plan() -> Callable[[], Plan]:
    return lambda: Plan(length=30, answer=(10, 20), question=8)
