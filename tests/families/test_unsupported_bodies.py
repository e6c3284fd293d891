"""A body that cannot be run is refused by name before its weights are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.load import load_model
from mtplxd.packs.pack import read_pack
from support.tiny_pack import make_tiny_pack


def pack_with(folder: Path, **changes: object) -> Path:
    path = make_tiny_pack(folder / "pack", head=False)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **changes}))
    return path


@pytest.mark.parametrize("kind", ["qwen9_next", "not a name", "..base"])
def test_a_model_type_without_a_class_is_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(FailedPrecondition, match="not supported") as refused:
        load_model(read_pack(pack_with(tmp_path, model_type=kind)))
    assert kind in str(refused.value)


def test_code_that_a_pack_brings_is_never_run(tmp_path: Path) -> None:
    path = pack_with(tmp_path, model_file="mine.py")
    (path / "mine.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w').close()")
    with pytest.raises(FailedPrecondition, match=r"mine\.py"):
        load_model(read_pack(path))
    assert not (tmp_path / "trace").exists()
