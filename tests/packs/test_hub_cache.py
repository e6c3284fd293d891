"""Hugging Face's cache as its own library fills it: found, used in place, completed, and never written to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.packs.detector import detect_head
from mtplxd.packs.manifest import Manifest, read_manifest, write_manifest
from mtplxd.packs.pull import pull
from mtplxd.packs.resolver import remove_pack, resolve
from mtplxd.packs.tiers import judge
from mtplxd.paths import Home
from support.hub_server import HubServer
from support.published import NAME, published_files

MLX_LM_TAKES = [
    "*.json", "model*.safetensors", "*.py", "tokenizer.model", "*.tiktoken", "tiktoken.model", "*.txt", "*.jsonl",
    "*.jinja",
]  # fmt: skip
DOWNLOAD = f"from huggingface_hub import snapshot_download; snapshot_download({NAME!r}, allow_patterns={MLX_LM_TAKES})"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    return published_files(tmp_path / "published")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(params=[False, True], ids=["links", "copies"])
def hub(
    request: pytest.FixtureRequest,
    files: dict[str, bytes],
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[HubServer]:
    """A Hub of which the library itself has fetched what mlx-lm takes, with links or as where none can be made."""
    with HubServer() as hub:
        hub.add(NAME, files)
        for name, value in {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_CACHE": str(cache),
            "NO_PROXY": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        without_links = {"HF_HUB_DISABLE_SYMLINKS": "1"} if request.param else {}
        subprocess.run(
            [sys.executable, "-c", DOWNLOAD], check=True, env=os.environ | without_links, capture_output=True
        )
        hub.asked.clear()
        yield hub


def state(cache: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in cache.rglob("*")}


@pytest.mark.usefixtures("hub")
def test_a_snapshot_is_a_pack_without_a_pull(home: Home, files: dict[str, bytes]) -> None:
    pack = resolve(NAME, home)
    assert (pack.path / "model.safetensors").read_bytes() == files["model.safetensors"]
    assert not detect_head(pack).present
    tier, reasons = judge(pack)
    assert tier == "no-mtp-head"
    assert f"`mtplx pull {NAME}`" in reasons[-1]


@pytest.mark.usefixtures("hub")
def test_it_is_not_ours_to_remove(home: Home, cache: Path) -> None:
    before = state(cache)
    with pytest.raises(FailedPrecondition, match="hf cache rm"):
        remove_pack(NAME, home)
    pull(NAME, home)
    remove_pack(NAME, home)
    assert state(cache) == before
    assert not resolve(NAME, home).path.is_relative_to(home.root)


def test_a_pull_uses_it_in_place_and_adds_the_head(
    hub: HubServer, home: Home, cache: Path, files: dict[str, bytes]
) -> None:
    before = state(cache)
    pack = pull(NAME, home)
    assert detect_head(pack).present
    weights = pack.path / "model.safetensors"
    assert weights.is_symlink()
    assert weights.resolve().is_relative_to(cache)
    assert hub.asked_for("model.safetensors") == []
    assert (pack.path / "mtp.safetensors").read_bytes() == files["mtp.safetensors"]
    assert state(cache) == before
    assert resolve(NAME, home) == pack


@pytest.mark.usefixtures("hub")
def test_a_record_made_here_does_not_reach_a_blob(home: Home, cache: Path) -> None:
    blobs = {path: path.read_bytes() for path in cache.rglob("blobs/*")}
    pack = resolve(NAME, home)
    write_manifest(pack.path, (pack.manifest or Manifest({})).with_ours(verification={"passed": True}))
    manifest = read_manifest(pack.path)
    assert manifest is not None
    assert manifest.verification == {"passed": True}
    assert {path: path.read_bytes() for path in blobs} == blobs
