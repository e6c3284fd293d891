"""What a model's weights are is found out before the engine has to do with it, not by the thread others wait for."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.packs import fingerprint
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.paths import Home
from mtplxd.platform.mlx import mx
from mtplxd.residency.catalog import PackCatalog
from mtplxd.residency.loader import ModelLoader
from support.fake_residency import Rig
from support.tiny_pack import make_tiny_pack


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return read_pack(make_tiny_pack(tmp_path / "tiny"))


def test_weights_are_read_before_the_engine_is_asked_and_on_another_thread(rig: Rig) -> None:
    rig.catalog.add("a")
    rig.load("a")
    [(name, thread)] = rig.catalog.hashed
    assert name == "a"
    assert not thread.startswith("fake-engine")
    assert rig.loader.events == ["load a"]


def test_the_engine_thread_reads_no_weights_again_to_know_them(
    pack: Pack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PackCatalog(Home(tmp_path / "home")).fingerprint(pack)

    def refuse(*_: object) -> str:
        raise AssertionError("weights were read on the engine thread")

    monkeypatch.setattr(fingerprint, "_hash_tensors", refuse)
    model = ModelLoader(lambda: None, lambda _: None).load(
        pack, plain=False, depth_max=None, progress=lambda *_: None, cancelled=bool
    )
    mx.synchronize()
    assert model.content is not None
    assert model.content[0].startswith("sha256:")
    assert model.content[1].startswith("sha256:")


def test_weights_that_cannot_be_read_are_the_loads_to_tell_of(pack: Pack, tmp_path: Path) -> None:
    for file in pack.body_files:
        file.unlink()
    PackCatalog(Home(tmp_path / "home")).fingerprint(pack)
