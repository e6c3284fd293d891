"""A child process sees of the Hub what its parent was told, and before a mirror no token at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.paths import HUB, HuggingFace, resolve_hugging_face

TOKEN = "hf_" + "E" * 34


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HF_TOKEN": "hf_of_the_environment",
        "HF_ENDPOINT": "http://elsewhere",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_CACHE": "/elsewhere",
        "HF_HOME": "/hf",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", raising=False)


@pytest.mark.parametrize(
    "said",
    [
        HuggingFace(Path("/cache"), TOKEN, None, offline=False),
        HuggingFace(Path("/cache"), TOKEN, HUB, offline=True),
        HuggingFace(Path("/cache"), None, "http://mirror:1", offline=False),
    ],
)
def test_it_sees_what_was_said_and_nothing_else(said: HuggingFace) -> None:
    seen = said.environment()
    assert resolve_hugging_face(seen) == said
    assert seen["HF_HOME"] == "/hf"


@pytest.mark.parametrize(
    "endpoint", ["http://mirror:1", "https://huggingface.co.evil.org", "https://hf-mirror.com/"]
)
def test_a_mirror_gets_no_token_of_any_kind(endpoint: str) -> None:
    seen = HuggingFace(Path("/cache"), TOKEN, endpoint, offline=False).environment()
    assert "HF_TOKEN" not in seen
    assert seen["HF_HUB_DISABLE_IMPLICIT_TOKEN"] == "1"


def test_the_hub_itself_gets_it_unless_its_owner_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = HuggingFace(Path("/cache"), TOKEN, f"{HUB}/", offline=False)
    assert hub.environment()["HF_TOKEN"] == TOKEN
    assert "HF_HUB_DISABLE_IMPLICIT_TOKEN" not in hub.environment()
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert hub.environment()["HF_HUB_DISABLE_IMPLICIT_TOKEN"] == "1"


def test_more_can_be_said() -> None:
    assert HuggingFace(Path("/c"), None, None, offline=False).environment(EXTRA="1")["EXTRA"] == "1"
