"""A published head that is not asked for leaves the body's plain decoding alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mtplxd.families.load import load_model
from mtplxd.packs.detector import detect_head
from mtplxd.packs.headers import read_headers, write_tensors
from mtplxd.packs.pack import read_pack
from mtplxd.paths import Home
from mtplxd.platform.mlx import mx
from mtplxd.residency.catalog import PackCatalog

ZOO = Path(__file__).parents[1] / "data" / "zoo"


def without_head(folder: Path, copy: Path) -> Path:
    """The same checkpoint with every tensor of its head taken out."""
    shutil.copytree(folder, copy)
    pack = read_pack(folder)
    (copy / "model.safetensors.index.json").unlink()
    for file in copy.glob("*.safetensors"):
        kept = {n: i for n, i in read_headers(file).items() if n in pack.body_tensors}
        data = file.read_bytes()
        layout = {name: (info.dtype, info.shape) for name, info in kept.items()}
        write_tensors(file, layout, ((name, data[info.begin : info.end]) for name, info in kept.items()))
    return copy


@pytest.mark.parametrize("name", ["mimo", "glm4_moe_lite", "qwen3_5"])
def test_a_plain_load_is_as_if_the_head_were_not_there(name: str, tmp_path: Path) -> None:
    plain = load_model(read_pack(ZOO / name), plain=True)
    bare = load_model(read_pack(without_head(ZOO / name, tmp_path / "bare")), plain=True)
    assert (plain.head, plain.bytes_head, plain.bytes_body) == (None, 0, bare.bytes_body)
    ids = mx.array([[72, 101, 108, 108, 111]])
    assert mx.array_equal(plain.target.model(ids), bare.target.model(ids))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["qwen3_5", "mimo", "glm4_moe_lite"])
def test_it_does_not_stop_plain_requests_and_a_headless_plan_leaves_its_bytes_out(
    name: str, tmp_path: Path
) -> None:
    catalog, pack = PackCatalog(Home(tmp_path)), read_pack(ZOO / name)
    driven = detect_head(pack).driven
    assert catalog.verdict(pack).head_whole == driven
    whole = catalog.need(pack, headless=False, widen=False)
    bare = catalog.need(pack, headless=True, widen=False)
    assert (whole.body, whole.head, bare.head) == (bare.body, pack.bytes_head, 0)
