"""Code that a pack ships is never run: not by its config, not by its tokenizer, not by its class."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition, MtplxError
from mtplxd.families.load import load_model
from mtplxd.packs.pack import read_pack
from support.tiny_pack import make_tiny_pack

AUTO = {"AutoModelForCausalLM": "own.Own", "AutoConfig": "own.Own", "AutoTokenizer": ["own.Own", None]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pack with a module that leaves a trace when it is imported."""
    folder = make_tiny_pack(tmp_path / "tiny")
    (folder / "own.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w').close()\nclass Own: pass\n")
    return folder


def add(file: Path, **fields: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


@pytest.mark.parametrize("kind", [None, "Own"])
def test_a_tokenizer_of_its_own_is_not_imported(folder: Path, tmp_path: Path, kind: str | None) -> None:
    named = {"tokenizer_class": kind} if kind else {}
    add(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": AUTO["AutoTokenizer"]}, **named)
    with contextlib.suppress(
        MtplxError
    ):  # refused, or read as the plain tokenizer that it is: neither runs it
        load_model(read_pack(folder))
    assert not (tmp_path / "trace").exists()


def test_a_config_that_maps_classes_to_its_own_code_is_loaded_without_it(
    folder: Path, tmp_path: Path
) -> None:
    add(folder / "config.json", auto_map=AUTO)
    assert load_model(read_pack(folder), plain=True).head is None
    assert not (tmp_path / "trace").exists()


def test_a_model_file_is_refused_by_its_name(folder: Path, tmp_path: Path) -> None:
    add(folder / "config.json", model_file="own.py")
    with pytest.raises(FailedPrecondition, match=r"own\.py"):
        load_model(read_pack(folder), plain=True)
    assert not (tmp_path / "trace").exists()
