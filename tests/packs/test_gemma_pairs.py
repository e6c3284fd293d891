"""A Gemma 4 assistant drafts for one target: what they must have in common is compared before anything is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mtplxd.packs.detector import HeadReport, detect_head
from mtplxd.packs.fingerprint import body_fingerprint, own_head_fingerprint
from mtplxd.packs.pack import read_pack
from mtplxd.packs.tiers import decodes_plainly, judge
from support.gemma_pair import assistant_config, target_config, write_pair
from support.published_keys import Keys, gemma_assistant, write_release


def report_of_pair(
    folder: Path, target: dict[str, Any], assistant: dict[str, Any], keys: Keys | None = None
) -> HeadReport:
    write_release(folder / "target", target, {})
    write_release(folder / "assistant", assistant, keys or gemma_assistant(assistant))
    (folder / "mtplx_pair.json").write_text("{}")
    return detect_head(read_pack(folder))


def with_text(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**config, "text_config": {**config["text_config"], **changes}}


@pytest.mark.parametrize("size", ["small", "large", "experts"])
@pytest.mark.parametrize("kind", ["gemma4", "gemma4_unified"])
def test_the_assistant_of_a_target_is_whole(size: str, kind: str, tmp_path: Path) -> None:
    found = report_of_pair(tmp_path, target_config(size, kind), assistant_config(size, f"{kind}_assistant"))
    assert (found.layout, found.problems, found.depth_max) == ("assistant", (), 8)
    assert found.tensors == (50 if size == "small" else 48)


@pytest.mark.parametrize(
    ("where", "change", "said"),
    [
        ("target", {"hidden_size": 128}, "backbone_hidden_size is 64, the target's hidden_size is 128"),
        ("target", {"vocab_size": 400}, "vocab_size is 300, the target's vocab_size is 400"),
        ("target", {"head_dim": 32}, "head_dim is 16, the target's head_dim is 32"),
        ("target", {"global_head_dim": 64}, "global_head_dim is 32, the target's global_head_dim is 64"),
        ("target", {"sliding_window": 16}, "sliding_window is 8, the target's sliding_window is 16"),
        ("target", {"num_key_value_heads": 3}, "num_attention_heads is 4, no multiple of the target's 3"),
        ("assistant", {"layer_types": ["sliding_attention", "linear_attention"]}, "layer_types is"),
        (
            "assistant",
            {"num_centroids": 7},
            "num_centroids is 7, which does not divide the vocabulary of 300",
        ),
    ],
)
def test_an_assistant_that_cannot_read_its_target_says_why(
    where: str, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    configs = {"target": target_config("small"), "assistant": assistant_config("small")}
    keys = gemma_assistant(configs["assistant"])
    configs[where] = with_text(configs[where], **change)
    found = report_of_pair(tmp_path, configs["target"], configs["assistant"], keys)
    assert any(said in problem for problem in found.problems), found.problems
    assert judge(read_pack(tmp_path))[0] == "incompatible"


def test_an_assistant_alone_is_named_as_a_drafter_without_a_body(tmp_path: Path) -> None:
    for kind in ("gemma4_assistant", "gemma4_unified_assistant"):
        config = assistant_config("small", kind)
        pack = read_pack(write_release(tmp_path / kind, config, gemma_assistant(config)))
        tier, reasons = judge(pack)
        assert tier == "incompatible"
        assert any("drafter without a body" in reason and "mtplx_pair.json" in reason for reason in reasons)


def beside(folder: Path, target: dict[str, Any], keys: Keys, wrap: str = "") -> HeadReport:
    named = {f"{wrap}mtp.{name}": shape for name, shape in keys.items()}
    return detect_head(read_pack(write_release(folder, target, named)))


@pytest.mark.parametrize("wrap", ["", "model.", "language_model."])
@pytest.mark.parametrize("size", ["small", "large"])
def test_an_assistant_under_mtp_beside_its_target_is_described_by_its_tensors(
    size: str, wrap: str, tmp_path: Path
) -> None:
    found = beside(tmp_path / "pack", target_config(size), gemma_assistant(assistant_config(size)), wrap)
    assert (found.layout, found.problems, found.prefix) == ("assistant", (), f"{wrap}mtp.")


def test_an_assistant_under_mtp_that_has_fewer_tensors_names_them(tmp_path: Path) -> None:
    keys = gemma_assistant(assistant_config("large"))
    del keys["model.layers.2.mlp.up_proj.weight"]
    assert beside(tmp_path / "pack", target_config("large"), keys).missing == (
        "mtp.model.layers.2.mlp.up_proj.weight",
    )


def test_kinds_of_layers_that_no_width_tells_are_not_guessed(tmp_path: Path) -> None:
    config = with_text(assistant_config("large"), global_head_dim=16)
    target = with_text(target_config("large"), global_head_dim=16)
    found = beside(tmp_path / "pack", target, gemma_assistant(config))
    assert any("does not tell what its layers attend to" in problem for problem in found.problems)


def test_other_mtp_tensors_in_a_gemma_checkpoint_are_named_and_refused(tmp_path: Path) -> None:
    pack = read_pack(
        write_release(
            tmp_path / "pack", target_config("small"), {"mtp.fc.weight": (64, 128), "mtp.norm.weight": (64,)}
        )
    )
    tier, reasons = judge(pack)
    assert (tier, detect_head(pack).prefix) == ("incompatible", "mtp.")
    assert any("not those of a Gemma 4 assistant" in reason for reason in reasons)
    assert not any(name.startswith("mtp.") for name in pack.body_tensors)


def test_an_assistant_alone_does_not_decode_plainly_either(tmp_path: Path) -> None:
    config = assistant_config("large")
    alone = read_pack(write_release(tmp_path / "alone", config, gemma_assistant(config)))
    target = read_pack(write_release(tmp_path / "target", target_config("large"), {}))
    assert (decodes_plainly(alone), decodes_plainly(target)) == (False, True)


def test_an_assistants_config_is_part_of_its_fingerprint(tmp_path: Path) -> None:
    folder = write_pair(tmp_path / "pair", "small")
    before, body = own_head_fingerprint(read_pack(folder)), body_fingerprint(read_pack(folder))
    file = folder / "assistant" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "transformers_version": "9"}))
    assert own_head_fingerprint(read_pack(folder)) == before
    file.write_text(json.dumps({**config, "centroid_intermediate_top_k": 5}))
    assert own_head_fingerprint(read_pack(folder)) != before
    assert body_fingerprint(read_pack(folder)) == body
