"""The way back: whatever a family does to its published tensors, a changed module is written and opened as itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.heads.bind import place_tensors
from mtplxd.families.heads.norms import is_norm
from mtplxd.families.heads.opening import read_published
from mtplxd.families.heads.unplace import unplace
from mtplxd.packs.binding import check_head
from mtplxd.packs.layouts.stored import scale_block
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import Array, mx, tree
from support.families import FAMILIES, write_checkpoint
from support.head_rig import Opened, open_head
from support.sidecars import SIDECAR

PLACED = tuple(family for family in FAMILIES if family != "gemma4")


def changed_of(opened: Opened, every: bool = True) -> dict[str, Array]:
    """Every parameter moved by numbers of its own, or only the matrices that join embedding and hidden."""
    rng = np.random.default_rng(2)
    found = {}
    for path, array in tree.tree_flatten(opened.head.module.parameters()):
        moved = np.array(array.astype(mx.float32)) + rng.normal(0, 0.5, array.shape)
        if every or path.endswith("fc.weight"):
            found[path] = mx.array(moved.astype(np.float32))
    return found


def published_of(folder: Path, opened: Opened, changed: dict[str, Array]) -> tuple[Any, dict[str, Array]]:
    pack = read_pack(folder)
    weights = read_published(pack, check_head(pack))
    head = opened.head
    made = unplace(changed, weights.tensors, head.family, head.settings, head.args, weights.body_layers)
    return weights, made


@pytest.mark.parametrize("family", PLACED)
def test_what_is_written_is_placed_where_it_came_from(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, family, place=SIDECAR, copies=False)
    opened = open_head(folder)
    changed = changed_of(opened)
    weights, made = published_of(folder, opened, changed)
    assert made.keys() == weights.tensors.keys()
    assert all(made[name].dtype == weights.tensors[name].dtype for name in made)
    head = opened.head
    config = {**weights.config}
    again = place_tensors(made, head.family, head.args, weights.body_layers, scale_block(config))
    assert again.keys() == changed.keys()
    for path, array in again.items():
        offset = head.settings.norm_convention == "zero_centred" and is_norm(path, array)
        found = np.array(array.astype(mx.float32)) + offset
        np.testing.assert_allclose(found, np.array(changed[path]), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_next", "mimo_v2_flash"])
def test_one_changed_matrix_is_one_tensor(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, family, place=SIDECAR)
    opened = open_head(folder)
    changed = changed_of(opened, every=False)
    _, made = published_of(folder, opened, changed)
    assert len(made) == len(changed) == len(opened.head.module.layers)


def test_an_expert_among_its_stack_is_written_alone(tmp_path: Path) -> None:
    """Numbers of one stacked matrix go back to as many published ones as there are experts, the rest stays."""
    folder = write_checkpoint(tmp_path, "glm4_moe", place=SIDECAR)
    opened = open_head(folder)
    path = next(p for p in changed_of(opened) if p.endswith("switch_mlp.up_proj.weight"))
    changed = {path: changed_of(opened)[path]}
    _, made = published_of(folder, opened, changed)
    assert len(made) == changed[path].shape[0]
    for name, array in made.items():
        number = int(name.split("experts.")[1].split(".")[0])
        np.testing.assert_allclose(
            np.array(array.astype(mx.float32)), np.array(changed[path][number]), rtol=1e-2, atol=1e-2
        )


def test_a_head_in_blocks_of_eight_bits_is_not_written_over(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "deepseek_v3", place=SIDECAR, fp8=True)
    opened = open_head(folder)
    with pytest.raises(FailedPrecondition, match="cannot be written as it was stored"):
        published_of(folder, opened, changed_of(opened))
