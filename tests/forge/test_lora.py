"""What is trained of a head: everything that has a gradient, or additions to its linears that fold into the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.forge.lora import LowRank, low_ranks, weight_of
from mtplxd.forge.trainable import changed_weights, prepare
from mtplxd.platform.mlx import mx, nn, tree
from support.families import write_checkpoint
from support.head_rig import open_head


def trained(module: Any) -> set[str]:
    return {path for path, _ in tree.tree_flatten(module.trainable_parameters())}


def pieces(bits: int = 0) -> Any:
    linear = nn.Linear(64, 32, bias=False)
    linear.weight = mx.random.normal((32, 64), key=mx.random.key(1))
    return linear.to_quantized(group_size=32, bits=bits) if bits else linear


@pytest.mark.parametrize("bits", [0, 4, 8])
def test_an_addition_begins_at_nothing_and_folds_into_the_weight(bits: int) -> None:
    linear = pieces(bits)
    low = LowRank(linear, 64, 32, 4, 2.0, mx.random.key(2))
    x = mx.random.normal((3, 64), key=mx.random.key(3))
    np.testing.assert_allclose(np.array(low(x)), np.array(linear(x)), atol=1e-5)
    np.testing.assert_allclose(np.array(low.folded()), np.array(weight_of(linear)), atol=1e-6)
    low.lora_b = mx.random.normal((4, 32), key=mx.random.key(4))
    assert np.abs(np.array(low(x)) - np.array(linear(x))).max() > 0.1
    np.testing.assert_allclose(np.array(x @ low.folded().T), np.array(low(x)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", ["glm4_moe", "deepseek_v3", "qwen3_next", "step3p5"])
def test_additions_are_all_that_is_trained_then(family: str, tmp_path: Path) -> None:
    module = open_head(write_checkpoint(tmp_path, family, copies=False)).head.module
    before = dict(tree.tree_flatten(module.parameters()))
    prepare(module, "lora", 4, 0)
    assert trained(module)
    assert all(path.endswith(("lora_a", "lora_b")) for path in trained(module))
    assert not any(path.endswith("output") or "switch_mlp" in path for path, _ in low_ranks(module))
    changed = changed_weights(module, "lora")
    assert any(path.endswith("fc.weight") for path in changed)
    for path, array in changed.items():
        np.testing.assert_allclose(np.array(array), np.array(before[path].astype(mx.float32)), atol=1e-6)


def test_a_seed_means_one_beginning(tmp_path: Path) -> None:
    def begin(seed: int, name: str) -> list[Any]:
        module = open_head(write_checkpoint(tmp_path / name, "mimo")).head.module
        prepare(module, "lora", 4, seed)
        return [np.array(array) for path, array in sorted(tree.tree_flatten(module.trainable_parameters()))]

    one, same, other = begin(1, "a"), begin(1, "b"), begin(2, "c")
    assert all(np.array_equal(x, y) for x, y in zip(one, same, strict=True))
    assert not all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


@pytest.mark.parametrize("family", ["glm4_moe", "deepseek_v3", "longcat_flash", "step3p5", "mimo"])
def test_all_but_what_has_no_gradient_is_trained_as_a_whole(family: str, tmp_path: Path) -> None:
    module = open_head(write_checkpoint(tmp_path, family, copies=False)).head.module
    prepare(module, "full", 0, 0)
    left = {path for path, _ in tree.tree_flatten(module.parameters())} - trained(module)
    allowed = ("e_score_correction_bias", "embed_tokens.weight", "output.weight")
    assert all(path.endswith(allowed) for path in left), left
    assert ("deepseek" not in family and "glm" not in family) or any("correction" in path for path in left)
    assert changed_weights(module, "full").keys() == trained(module)


def test_a_head_with_nothing_to_train_is_refused() -> None:
    module = nn.Sequential(pieces(4))
    module.freeze()
    with pytest.raises(FailedPrecondition, match="nothing of this head"):
        prepare(module, "full", 0, 0)
