"""How a head's norms are stored is decided once, from their values, and what it computes is the same either way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.heads.norms import convention_of_body, decide_convention, is_norm
from mtplxd.families.load import load_model
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import Array, mx
from support.families import write_checkpoint
from support.head_references import ALLOWED, draw, reference_of
from support.head_rig import draft_logits, open_head
from support.sidecars import SIDECAR, Tensors, rewrite


def norms_around(middle: float, count: int = 7) -> list[Array]:
    return [mx.random.normal((64,), key=mx.random.key(i)) * 0.2 + middle for i in range(count)]


def test_values_around_0_lack_a_1_and_values_around_1_do_not() -> None:
    assert decide_convention(norms_around(0.05), None) == "zero_centred"
    assert decide_convention(norms_around(1.1), None) == "as_stored"


def test_some_norms_far_from_all_others_do_not_decide() -> None:
    far = [mx.full((64,), 6.0), mx.full((64,), 4.0)]
    assert decide_convention([*norms_around(0.0, 5), *far], "as_stored") == "zero_centred"


@pytest.mark.parametrize("of_body", ["zero_centred", "as_stored"])
def test_what_the_values_leave_open_is_as_in_the_body(of_body: str) -> None:
    assert decide_convention(norms_around(0.5), of_body) == of_body
    assert decide_convention(norms_around(2.0), of_body) == of_body


def test_what_nothing_decides_is_refused_with_what_to_write() -> None:
    with pytest.raises(FailedPrecondition, match=r"mean is 0\.50.*norm_convention.*mtplx_runtime\.json"):
        decide_convention([mx.full((8,), 0.5)], None)


def test_a_body_s_convention_is_what_loading_added() -> None:
    stored = mx.full((8,), 0.5, mx.bfloat16)
    assert convention_of_body([(stored, stored + 1)] * 3) == "zero_centred"
    assert convention_of_body([(stored, stored.astype(mx.float32))] * 3) == "as_stored"
    assert convention_of_body([]) is None


def test_only_rms_norms_count() -> None:
    vector, matrix = mx.ones((4,)), mx.ones((4, 4))
    assert is_norm("layers.0.block.self_attn.q_norm.weight", vector)
    assert is_norm("layers.0.norm.weight", vector)
    assert not is_norm("layers.0.block.self_attn.indexer.k_norm.weight", vector)
    assert not is_norm("layers.0.block.self_attn.indexer.k_norm.bias", vector)
    assert not is_norm("layers.0.normaliser.weight", matrix)
    assert not is_norm("layers.0.block.self_attn.q_proj.bias", vector)


def add_one(tensors: Tensors) -> None:
    shifted = {n: (w.astype(mx.float32) + 1).astype(mx.bfloat16) for n, w in tensors.items() if "norm" in n}
    tensors.update(shifted)


@pytest.mark.parametrize("shifted", [False, True])
def test_raw_and_shifted_heads_compute_the_same(shifted: bool, tmp_path: Path) -> None:
    raw = open_head(write_checkpoint(tmp_path / "raw", "step3p5", place=SIDECAR))
    folder = write_checkpoint(tmp_path / "other", "step3p5", place=SIDECAR)
    if shifted:
        rewrite(folder, add_one)
    opened = open_head(folder)
    assert opened.head.settings.norm_convention == ("as_stored" if shifted else "zero_centred")
    tokens, hidden, drafts = draw(raw, drafts=2)
    wanted = reference_of("step3p5", raw).draft(tokens, hidden, drafts)
    found = draft_logits(opened.head, tokens, hidden, drafts, [23])
    assert np.abs(found - wanted).max() < ALLOWED


def test_the_body_decides_for_a_head_whose_values_do_not(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "step3p5", place=SIDECAR)

    def blur(tensors: Tensors) -> None:
        norms = [name for name in tensors if "norm" in name]
        tensors.update({name: mx.full(tensors[name].shape, 0.5, mx.bfloat16) for name in norms})

    rewrite(folder, blur)
    model = load_model(read_pack(folder))
    assert model.head_settings is not None
    assert model.head_settings.norm_convention == "zero_centred"
    with pytest.raises(FailedPrecondition, match="cannot tell"):
        open_head(folder)


def test_a_stated_convention_is_not_decided_again(tmp_path: Path) -> None:
    manifest = {"mtplxd": {"format": 1, "head": {"norm_convention": "as_stored"}}}
    opened = open_head(write_checkpoint(tmp_path, "step3p5", manifest=manifest))
    assert opened.head.settings.norm_convention == "as_stored"
