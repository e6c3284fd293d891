"""A head binds to the last tensor or is refused with the names of all that does not fit, and then leaves nothing."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.heads.opening import bind_published, read_published
from mtplxd.families.load import load_model
from mtplxd.families.settling import Settler
from mtplxd.packs.binding import check_head
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.families import FAMILIES, write_checkpoint
from support.head_rig import BareBody, open_head, text_args
from support.sidecars import SIDECAR, Tensors, rewrite

MINE = ("deepseek_v3", "deepseek_v32", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "mimo_v2_flash", "step3p5")
PLACED = tuple(family for family in FAMILIES if family != "gemma4")
"""Those whose head may lie in a file of its own beside the body."""


def refusal(folder: Path) -> str:
    with pytest.raises(FailedPrecondition) as refused:
        open_head(folder)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("family", MINE)
def test_a_missing_an_unused_and_a_misshapen_tensor_are_all_named(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, family, place=SIDECAR)
    names: list[str] = []

    def spoil(tensors: Tensors) -> None:
        matrices = sorted(name for name in tensors if name.endswith("_proj.weight"))
        names.extend([matrices[0], matrices[-1], f"{matrices[0].rpartition('.')[0]}.stranger"])
        tensors.pop(names[0])
        tensors[names[1]] = tensors[names[1]][:, 1:]
        tensors[names[2]] = mx.zeros((4,))

    rewrite(folder, spoil)
    text = refusal(folder)
    assert all(name in text for name in names), text


@pytest.mark.parametrize("family", MINE)
def test_half_a_head_is_refused(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, family, place=SIDECAR)
    rewrite(folder, lambda tensors: [tensors.pop(name) for name in sorted(tensors)[::2]] and None)
    assert "missing" in refusal(folder)


@pytest.mark.parametrize("value", [0.0, float("nan")])
@pytest.mark.parametrize("family", PLACED)
def test_every_norm_of_zeros_or_of_no_numbers_is_named(family: str, value: float, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, family, place=SIDECAR)
    names: list[str] = []

    def spoil(tensors: Tensors) -> None:
        names.extend(name for name, array in tensors.items() if "norm" in name and array.ndim == 1)
        names[:] = [name for name in names if name.endswith(".weight")]
        tensors.update({name: mx.full(tensors[name].shape, value, mx.bfloat16) for name in names})

    rewrite(folder, spoil)
    with pytest.raises(FailedPrecondition) as refused:
        check_head(read_pack(folder))
    assert len(names) > 3
    assert all(name in str(refused.value) for name in names)


def test_the_module_itself_binds_strictly_both_ways(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "glm4_moe_lite")
    opened, pack = open_head(folder), read_pack(folder)
    weights = read_published(pack, check_head(pack))
    at = "layers.2.mlp.experts"
    weights.tensors["layers.2.stranger.weight"] = weights.tensors.pop("layers.2.hnorm.weight")
    del weights.tensors[f"{at}.1.up_proj.weight"]
    with pytest.raises(FailedPrecondition) as refused:
        bind_published(weights, opened.body, Settler(0, None, None), None)
    text = str(refused.value)
    assert "missing ['layers.0.hnorm.weight']" in text
    assert "layers.0.block.stranger.weight" in text
    assert "experts.2.up_proj.weight" in text
    assert "switch_mlp.up_proj.weight [1, 32, 64] not [4, 32, 64]" in text


def test_a_refused_head_leaves_no_memory(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "glm4_moe")
    pack = read_pack(folder)
    body = BareBody(np.zeros((300, 64), np.float32), np.zeros((300, 64), np.float32), text_args(pack.config))
    mx.eval(body.embedding.weight)
    before = active()
    weights = read_published(pack, check_head(pack))
    weights.tensors.pop("layers.2.eh_proj.weight")
    with pytest.raises(FailedPrecondition):
        bind_published(weights, body, Settler(0, None, None), None)
    del weights
    assert active() == before


def test_a_head_refused_after_its_body_was_loaded_leaves_no_memory(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "step3p5")
    before = active()
    with pytest.raises(FailedPrecondition, match=r"one token a layer \(depth 4\): use at most 3"):
        load_model(read_pack(folder), depth_max=4)
    assert active() == before


def active() -> int:
    """Bytes MLX holds once everything that nobody refers to is gone."""
    gc.collect()
    mx.synchronize()
    mx.clear_cache()
    return int(mx.get_active_memory())


@pytest.mark.parametrize("family", MINE)
def test_a_head_adds_its_own_tensors_and_nothing_else(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, family)
    pack = read_pack(folder)
    report = check_head(pack)
    own = sum(
        int(np.prod(info.shape)) * 4
        for name, (_, info) in pack.head_tensors.items()
        if name not in report.copies
    )
    opened = open_head(folder)
    del opened.tensors
    mx.eval(opened.body.embedding.weight)
    before = active()
    weights = read_published(pack, report)
    head, _ = bind_published(weights, opened.body, Settler(0, None, None), None)
    added = active() - before
    assert head.nbytes <= 1.02 * own
    assert head.nbytes >= own
    assert added <= 1.02 * own + (64 << 10)
