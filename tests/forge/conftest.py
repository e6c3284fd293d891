"""A tiny pack without a head, loaded once, a recipe small enough to train in seconds, and a home beside a Hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.forge.rollout import Plan
from mtplxd.forge.sizing import Recipe
from mtplxd.forge.trainer import Schedule
from mtplxd.packs.pack import read_pack
from mtplxd.paths import Home, HuggingFace
from support.hub_server import HubServer
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


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def hugging_face(hub: HubServer, tmp_path: Path) -> HuggingFace:
    return HuggingFace(tmp_path / "cache", None, hub.url, offline=False)


@pytest.fixture
def hub_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's settings for the Hub, and no way past the one of the tests."""
    for name in (
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HF_HUB_OFFLINE",
        "HF_HUB_CACHE",
        "HTTPS_PROXY",
        "https_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
