"""A publisher's contract verifies a pack for exactly its config and head, and says how its head is fed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mtplxd.packs.manifest import FILE_NAME, Manifest
from mtplxd.packs.pack import read_pack
from mtplxd.packs.tiers import judge
from mtplxd.packs.verified import fingerprint_of
from support.tiny_pack import make_tiny_pack
from support.verifications import passing_findings

ZOO = Path(__file__).parents[1] / "data" / "zoo"
Fields = dict[str, Any]
Edit = Callable[[Fields], None]


def framed(folder: Path, head: str = "mtp.safetensors") -> str:
    """As the field writes it: each file behind its label, zero bytes between."""
    config, weights = (folder / "config.json").read_bytes(), (folder / head).read_bytes()
    return hashlib.sha256(b"config.json\0" + config + b"\0mtp\0" + weights + b"\0").hexdigest()


def joined(folder: Path) -> str:
    both = (folder / "config.json").read_bytes() + (folder / "mtp.safetensors").read_bytes()
    return hashlib.sha256(both).hexdigest()


def contract(fingerprint: str) -> Fields:
    """What the field puts into a pack that won."""
    rows = [{"depth": depth, "tok_s": 40.0 + depth, "hit_token_budget": False} for depth in range(4)]
    return {
        "mtplx_version": "2.12.0",
        "arch_id": "llama-adapter",
        "mtp_depth_max": 3,
        "recommended_profile": "sustained",
        "exactness_baseline": {"context": 2048, "max_abs_diff": 0.0},
        "verified_on": {"timestamp": "2026-05-26T00:00:00+01:00", "hardware": "Apple M5 Max"},
        "sampler": {"temperature": 0.6, "top_p": 0.95, "top_k": 20},
        "speed_evidence": {
            "depth": 3,
            "tok_s": [43.0],
            "forge_verify_rows": rows,
            "verdict": "mtp_depth_wins",
            "failure_reasons": [],
            "artifact_fingerprint": fingerprint,
        },
        "mtp_contract": {
            "base_hidden_variant": "post_norm",
            "hidden_variant": "post_norm",
            "concat_order": "embedding_hidden",
            "mtp_position_mode": "cache",
        },
        "forge_provenance": {"forged_at": "2026-05-25T20:00:00+01:00"},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_pack(tmp_path / "tiny")


def tier_of(
    folder: Path, edit: Edit = lambda _: None, fingerprint: str | None = None
) -> tuple[str, list[str]]:
    fields = contract(fingerprint or f"sha256:{framed(folder)}")
    edit(fields)
    (folder / FILE_NAME).write_text(json.dumps(fields))
    tier, reasons = judge(read_pack(folder))
    return str(tier), reasons


def test_a_verification_of_these_files_that_failed_here_goes_before_its_word(folder: Path) -> None:
    assert tier_of(folder)[0] == "verified"
    files = {"fingerprint": fingerprint_of(read_pack(folder)), "depths": list(range(9))}

    def failed(**changed: Any) -> tuple[str, list[str]]:
        record = {**passing_findings(passed=False), **files, **changed}
        return tier_of(folder, lambda fields: fields.update(mtplxd={"format": 1, "verification": record}))

    assert failed() == ("unverified", ["its verification did not pass"])
    assert failed(fingerprint={"body": "sha256:another", "head": "sha256:another"})[0] == "verified"


@pytest.mark.parametrize("digest", [framed, joined])
@pytest.mark.parametrize("prefix", ["sha256:", ""])
def test_a_winning_measurement_of_these_files_verifies(folder: Path, digest: Any, prefix: str) -> None:
    found = tier_of(folder, fingerprint=prefix + digest(folder))
    assert found == ("verified", ["verified by its publisher on 2026-05-26 (Apple M5 Max)"])


def lose(fields: Fields) -> None:
    fields["speed_evidence"]["verdict"] = "no_mtp_depth_beat_ar"


def fail(fields: Fields) -> None:
    fields["speed_evidence"]["failure_reasons"] = ["repeats itself"]


def leave_open(fields: Fields) -> None:
    fields["exactness_baseline"]["status"] = "candidate-awaiting-review"


def cut(fields: Fields) -> None:
    fields["speed_evidence"]["forge_verify_rows"][2]["hit_token_budget"] = True


def measure_before(fields: Fields) -> None:
    fields["forge_provenance"]["forged_at"] = "2026-05-27T00:00:00Z"


def forget_when(fields: Fields) -> None:
    fields["verified_on"] = {"hardware": "Apple M5 Max"}


def forget_what(fields: Fields) -> None:
    del fields["speed_evidence"]["artifact_fingerprint"]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lose, "verdict is no_mtp_depth_beat_ar"),
        (fail, "repeats itself"),
        (leave_open, "exactness_baseline is candidate-awaiting-review"),
        (cut, "token budget"),
        (measure_before, "built after"),
        (forget_when, "verified_on.timestamp"),
        (forget_what, "artifact_fingerprint"),
    ],
)
def test_a_contract_that_says_less_verifies_nothing(folder: Path, edit: Edit, said: str) -> None:
    tier, reasons = tier_of(folder, edit)
    assert tier == "unverified"
    assert any(said in reason for reason in reasons)


@pytest.mark.parametrize("file", ["config.json", "mtp.safetensors"])
def test_a_measurement_of_other_files_verifies_nothing(folder: Path, file: str) -> None:
    before = f"sha256:{framed(folder)}"
    if file == "config.json":
        (folder / file).write_text((folder / file).read_text() + "\n")
    else:
        content = bytearray((folder / file).read_bytes())
        content[-1] ^= 1
        (folder / file).write_bytes(bytes(content))
    tier, reasons = tier_of(folder, fingerprint=before)
    assert tier == "unverified"
    assert any("another config or head" in reason for reason in reasons)


@pytest.mark.parametrize("name", ["mtp/weights.safetensors", "model-mtp.safetensors", "head.safetensors"])
def test_the_heads_file_may_have_any_of_the_fields_names(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / "mtp.safetensors").rename(folder / name)
    config = json.loads((folder / "config.json").read_text())
    if name == "head.safetensors":
        config["mlx_lm_extra_tensors"] = {"mtp_file": name}
    (folder / "config.json").write_text(json.dumps(config))
    fingerprint = f"sha256:{framed(folder, name)}"
    assert tier_of(folder, fingerprint=fingerprint)[0] == "verified"


@pytest.mark.parametrize("stray", [{"speed_evidence": 3}, {"verified_on": []}, {"mtp_contract": "x"}])
def test_fields_of_another_kind_are_no_contract(folder: Path, stray: Fields) -> None:
    tier, _ = tier_of(folder, lambda fields: fields.update(stray))
    assert tier == ("verified" if "mtp_contract" in stray else "unverified")


def test_the_contract_says_how_the_head_is_fed_and_our_block_goes_first() -> None:
    said = {
        "base_hidden_variant": "pre_norm",
        "hidden_variant": "pre_norm",
        "concat_order": "hidden_embedding",
    }
    manifest = Manifest({"mtp_contract": said})
    assert manifest.head_settings == {"tap": "pre", "recursion": "pre", "concat": "hidden_first"}
    assert manifest.strange_settings == ()
    ours = manifest.with_ours(head={"tap": "post", "norm_convention": None})
    assert ours.head_settings == {"tap": "post", "recursion": "pre", "concat": "hidden_first"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mtp_contract": {"hidden_variant": "fc"}}, "recursion 'fc'"),
        ({"mtp_contract": {"concat_order": "sideways"}}, "concat 'sideways'"),
        ({"mtp_contract": {"mtp_position_mode": "absolute"}}, "mtp_position_mode 'absolute'"),
        ({"mtplxd": {"head": {"tap": "middle"}}}, "tap 'middle'"),
    ],
)
def test_what_no_module_does_is_named(fields: Fields, said: str) -> None:
    assert said in Manifest(fields).strange_settings


def test_a_published_head_that_is_to_be_fed_otherwise_is_incompatible(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ZOO / "glm4_moe_lite", tmp_path / "pack"))
    (folder / FILE_NAME).write_text(json.dumps({"mtp_contract": {"hidden_variant": "prev"}}))
    assert judge(read_pack(folder)) == ("incompatible", ["its contract asks for recursion 'prev'"])
    (folder / FILE_NAME).write_text(json.dumps({"mtp_contract": {"hidden_variant": "pre_norm"}}))
    assert judge(read_pack(folder))[0] == "unverified"


def test_what_a_publisher_wrote_stays_in_its_line_and_a_day_before_all_others_is_none(folder: Path) -> None:
    fields = contract(framed(folder))
    fields["speed_evidence"] |= {"verdict": "won\nverified", "failure_reasons": ["a\r\nb"]}
    fields["verified_on"]["timestamp"] = "0001-01-01"
    (folder / FILE_NAME).write_text(json.dumps(fields))
    tier, reasons = judge(read_pack(folder))
    assert tier == "unverified"
    assert "its publisher's verdict is won verified (a b)" in reasons


@pytest.mark.parametrize("stray", [5, [], {"sha256": "x"}, True])
def test_a_recorded_fingerprint_that_is_no_text_is_none(stray: object) -> None:
    manifest = Manifest({"mtplxd": {"fingerprint": {"body": stray, "head": stray}}})
    assert (manifest.body_fingerprint, manifest.head_fingerprint) == (None, None)
