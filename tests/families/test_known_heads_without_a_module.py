"""Heads that are known by name and driven by no module here: named and refused before anything of them is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.load import load_model
from mtplxd.packs.detector import detect_head
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.tiers import judge
from mtplxd.platform.mlx import mx
from support.published_configs import DEEPSEEK
from support.published_keys import body_keys, write_release

LAYERS = DEEPSEEK["num_hidden_layers"]
KNOWN = [
    (
        "qwen4_exp",
        "mtp.fc_embedding.weight",
        "mtp.",
        "qwen4_exp: its head feeds back several residual streams",
    ),
    (
        "deepseek_v4",
        "mtp.0.e_proj.weight",
        "mtp.",
        "deepseek_v4: its head feeds back several residual streams",
    ),
    ("deepseek_v41", "mtp.0.proj.weight", "mtp.", "deepseek_v41: its mtp.* tensors are DSpark stages"),
    (
        "minimax_m3_vl",
        "model.mtp.layers.0.transformer_layer.input_layernorm.weight",
        "model.mtp.",
        "minimax_m3: no module drives its sparse attention",
    ),
    (
        "minimax_m3_vl",
        "language_model.model.mtp.layers.0.transformer_layer.input_layernorm.weight",
        "language_model.model.mtp.",
        "minimax_m3: no module drives its sparse attention",
    ),
    ("hy_v3", f"model.layers.{LAYERS}.eh_proj.weight", f"model.layers.{LAYERS}.", "hunyuan_v3: no module"),
    ("hy_v4", "model.mtp_layers.0.input_proj.weight", "model.mtp", "hunyuan_v4: no module"),
    ("hy_v4_vl", "model.mtp_layers.0.eh_proj.weight", "model.mtp", "hunyuan_v4: no module"),
    ("inkling_mm_model", "model.mtp.layers.0.input_proj.weight", "model.mtp.", "inkling: no module"),
    ("exaone_moe", "mtp.fc.weight", "mtp.", "exaone: no module"),
    ("exaone4_5", "mtp.fc.weight", "mtp.", "exaone: no module"),
    ("mellum", "mtp.fc.weight", "mtp.", "mellum: no module"),
    (
        "bailing_hybrid",
        f"model.layers.{LAYERS}.eh_proj.weight",
        f"model.layers.{LAYERS}.",
        "bailing: no module",
    ),
    ("glm5_next", f"model.layers.{LAYERS}.eh_proj.weight", f"model.layers.{LAYERS}.", "glm5_next: no module"),
    (
        "glm_ocr",
        f"model.language_model.layers.{LAYERS}.eh_proj.weight",
        f"model.language_model.layers.{LAYERS}.",
        "glm_ocr: no module",
    ),
]
WITHOUT_CLASS = ("qwen4_exp", "deepseek_v4", "hy_v3", "hy_v4", "inkling_mm_model", "glm5_next")
"""Those of which mlx-lm has no body either."""


def written(folder: Path, model_type: str, *keys: str) -> Pack:
    config = {**DEEPSEEK, "model_type": model_type}
    return read_pack(write_release(folder, config, dict.fromkeys(keys, (8, 8))))


@pytest.mark.parametrize(("model_type", "key", "prefix", "said"), KNOWN)
def test_it_is_named_and_refused_and_nothing_is_loaded(
    model_type: str, key: str, prefix: str, said: str, tmp_path: Path
) -> None:
    pack = written(tmp_path / "pack", model_type, key, key.replace(".weight", ".other"))
    report = detect_head(pack)
    assert (report.present, report.driven, report.depth_max) == (True, False, 0)
    assert report.prefix.startswith(prefix)
    assert report.faults[0].startswith(said)
    tier, reasons = judge(pack)
    assert tier == "incompatible"
    assert any(said in reason for reason in reasons)
    assert pack.body_tensors.keys() == body_keys({**DEEPSEEK, "model_type": model_type}).keys()
    before = mx.get_active_memory()
    with pytest.raises(FailedPrecondition, match="--plain") as refused:
        load_model(pack)
    assert said.split(":")[0] in str(refused.value)
    assert mx.get_active_memory() == before


@pytest.mark.parametrize("model_type", WITHOUT_CLASS)
def test_a_body_without_a_class_is_refused_by_its_type_head_or_no_head(
    model_type: str, tmp_path: Path
) -> None:
    with pytest.raises(FailedPrecondition, match=rf"family is not supported \({model_type}\)"):
        load_model(written(tmp_path / "pack", model_type, "mtp.fc.weight"), plain=True)
    with pytest.raises(FailedPrecondition, match=rf"family is not supported \({model_type}\)"):
        load_model(written(tmp_path / "bare", model_type))


@pytest.mark.parametrize("model_type", ["kimi_k2", "kimi_k3", "minimax_m2"])
def test_a_family_that_publishes_no_head_has_none(model_type: str, tmp_path: Path) -> None:
    report = detect_head(written(tmp_path / "pack", model_type))
    assert not report.present
