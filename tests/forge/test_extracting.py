"""A head is taken out whole, under its published names, and says how it is fed; what cannot be done so is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import Cancelled, FailedPrecondition, InvalidArgument
from mtplxd.families.load import load_model
from mtplxd.forge.extracting import SIDECAR, extract_head
from mtplxd.packs.detector import detect_head
from mtplxd.packs.fetch import hash_file
from mtplxd.packs.headers import read_headers
from mtplxd.packs.manifest import read_manifest
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.checkpoint_files import Stored, read_tensors, store
from support.families import FAMILIES, write_checkpoint
from support.forging import Listener, contents, convert, count_to, extract, forge, never, silent
from support.mlx_packing import nearest_values, unpack_matrix
from support.zoo import NAMES, ZOO, right_settings

COUNTS = {"qwen3_5": 15, "mimo": 16, "glm4_moe_lite": 42}
"""Head tensors of the zoo, copies of the body's two matrices left out."""
JOINTS = r"(?:^|\.)(?:fc|eh_proj|input_proj|mtp_linear_proj\.0)\.weight$"


def raw(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Dtype and bytes of every tensor of a pack."""
    found = {}
    for path, infos in read_pack(folder).headers.items():
        data = path.read_bytes()
        found |= {name: (info.dtype, data[info.begin : info.end]) for name, info in infos.items()}
    return found


def run_head(folder: Path) -> np.ndarray:
    """First and second drafts' logits of a pack's head over a few pairs."""
    model = load_model(read_pack(folder))
    head: Any = model.head
    tokens = [61 * place % 256 for place in range(1, 14)]
    cache = model.target.make_cache(1)
    _, taps = model.target.run(mx.array([tokens[:-1]], mx.int32), cache)
    own = head.make_cache(1, cache)
    state = head.absorb(mx.array([tokens[1:]], mx.int32), taps, own)[:, -1:]
    logits = [head.logits(state)]
    if len(own) == 1:
        logits.append(head.logits(head.extend(mx.array([[7]], mx.int32), state, own)))
    return np.array(mx.concatenate(logits, axis=1)[0].astype(mx.float32))


@pytest.mark.parametrize("name", NAMES)
def test_the_sidecar_has_the_heads_bytes_under_its_published_names(name: str, tmp_path: Path) -> None:
    _, found = forge(ZOO / name, tmp_path)
    source, names = raw(ZOO / name), detect_head(read_pack(ZOO / name)).located.keys()
    stored = {n: one for n, one in raw(tmp_path).items() if n in read_headers(tmp_path / SIDECAR)}
    assert stored == {n: source[n] for n in names - set(found.shared)}
    assert len(stored) == found.tensors == COUNTS[name]
    assert hash_file(tmp_path / SIDECAR) == found.sha256
    assert found.bytes == sum(len(data) for _, data in stored.values())


def test_copies_of_the_bodys_matrices_are_left_out_and_named(tmp_path: Path) -> None:
    _, found = forge(ZOO / "glm4_moe_lite", tmp_path)
    assert found.shared == ("model.layers.3.embed_tokens.weight", "model.layers.3.shared_head.head.weight")
    assert found.aliases == {"embed_tokens": "model.embed_tokens.weight", "lm_head": "lm_head.weight"}


def test_matrices_that_are_not_the_bodys_stay(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "glm4_moe_lite", copies="other")
    _, found = forge(source, tmp_path / "pack")
    assert found.shared == ()
    assert {
        n for n in read_headers(tmp_path / "pack" / SIDECAR) if "embed_tokens" in n or "shared_head.head" in n
    }


@pytest.mark.parametrize("name", NAMES)
def test_how_it_is_fed_is_written_into_the_contract(name: str, tmp_path: Path) -> None:
    _, found = forge(ZOO / name, tmp_path)
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert dict(found.settings) == right_settings(name)
    assert manifest.head_settings == right_settings(name)
    assert manifest.strange_settings == ()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_forged_into_a_pack_whose_head_drafts_as_the_sources(
    family: str, tmp_path: Path
) -> None:
    source = write_checkpoint(tmp_path / "source", family)
    conversion, found = forge(source, tmp_path / "pack")
    assert conversion.lossless
    assert detect_head(read_pack(tmp_path / "pack")).problems == ()
    assert np.array_equal(run_head(source), run_head(tmp_path / "pack"))
    assert found.scheme == detect_head(read_pack(source)).scheme


@pytest.mark.parametrize("wrap", ["", "language_model.", "model.language_model."])
def test_what_wraps_the_language_model_is_taken_off_the_names(wrap: str, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "qwen3_5", wrap=wrap)
    _, found = forge(source, tmp_path / "pack")
    assert all(name.startswith("mtp.") for name in read_headers(tmp_path / "pack" / SIDECAR))
    assert found.tensors == 15


@pytest.mark.parametrize("place", ["single", "own_shard", "mtp.safetensors", "model_mtp.safetensors"])
def test_it_is_found_wherever_it_lies(place: str, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "glm4_moe", place=place)
    forge(source, tmp_path / "pack")
    assert np.array_equal(run_head(source), run_head(tmp_path / "pack"))


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_5_moe", "longcat_flash"])
def test_fp8_blocks_become_the_numbers_they_stand_for(family: str, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", family, fp8=True)
    found = extract(source, tmp_path / "pack")
    wanted, stored = read_tensors(source), read_tensors(tmp_path / "pack")
    assert stored
    for name, values in stored.items():
        assert np.abs(values - wanted[name]).max() <= np.abs(wanted[name]).max() * 2**-8, name
    dtypes = {info.dtype for info in read_headers(tmp_path / "pack" / SIDECAR).values()}
    assert dtypes <= {"BF16", "F32"}
    assert found.dtype == "bf16"


def test_what_orders_experts_keeps_its_width(tmp_path: Path) -> None:
    forge(ZOO / "glm4_moe_lite", tmp_path)
    dtypes = {name: info.dtype for name, info in read_headers(tmp_path / SIDECAR).items()}
    assert {n for n, dtype in dtypes.items() if dtype == "F32"} == {
        n for n in dtypes if n.endswith("correction_bias")
    }


def test_wide_floats_become_half_ones(tmp_path: Path) -> None:
    def widen(head: dict[str, Stored]) -> None:
        values = np.frombuffer(head["mtp.fc.weight"].data, np.uint16).astype(np.uint32) << 16
        head["mtp.fc.weight"] = store(values.view(np.float32).reshape(head["mtp.fc.weight"].shape), "F32")

    source = write_checkpoint(tmp_path / "source", "qwen3_5", edit=widen)
    forge(source, tmp_path / "pack")
    assert read_headers(tmp_path / "pack" / SIDECAR)["mtp.fc.weight"].dtype == "BF16"


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_a_packed_head_binds_at_every_width_and_says_that_it_is_degraded(bits: int, tmp_path: Path) -> None:
    convert(ZOO / "mimo", tmp_path)
    found = extract(ZOO / "mimo", tmp_path, bits)
    name = "model.mtp_layers.0.mlp.gate_proj"
    wanted, stored = read_tensors(ZOO / "mimo")[f"{name}.weight"], read_tensors(tmp_path)
    parts = [stored[f"{name}.{part}"] for part in ("weight", "scales", "biases")]
    best = np.abs(nearest_values(wanted, *parts, bits) - wanted)
    rounding = np.abs(wanted).max() * 2**-7
    assert (np.abs(unpack_matrix(*parts, bits) - wanted) <= best + rounding).all()
    assert (found.dtype, found.bits, found.packed) == ("packed", bits, 7)
    assert any("degraded" in note for note in found.notes)
    assert np.isfinite(run_head(tmp_path)).all()


@pytest.mark.parametrize(
    "family", ["glm4_moe_lite", "qwen3_5_moe", "qwen3_next", "nemotron_h", "deepseek_v32"]
)
def test_joints_routers_and_vocabulary_are_never_packed(family: str, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", family, copies="other")
    convert(source, tmp_path / "pack")
    found = extract(source, tmp_path / "pack", 4)
    infos = read_headers(tmp_path / "pack" / SIDECAR)
    whole = rf"{JOINTS}|\.(?:gate|shared_expert_gate|embed_tokens|head)\.weight$"
    assert {infos[name].dtype for name in infos if re.search(whole, name)} == {"BF16"}
    assert found.packed > 4
    assert np.isfinite(run_head(tmp_path / "pack")).all()


def test_packing_a_head_must_be_asked_for_twice(tmp_path: Path) -> None:
    for bits, allowed in ((4, False), (7, True), (16, True)):
        with pytest.raises(InvalidArgument) as refusal:
            extract_head(ZOO / "mimo", tmp_path, bits, allowed, silent, never)
        assert refusal.value.field == "head_bits"
    assert contents(tmp_path) == {}


def test_a_head_that_was_published_packed_stays_so(tmp_path: Path) -> None:
    convert(ZOO / "mimo", tmp_path / "packed")
    extract(ZOO / "mimo", tmp_path / "packed", 4)
    _, found = forge(tmp_path / "packed", tmp_path / "again")
    assert (tmp_path / "again" / SIDECAR).read_bytes() == (tmp_path / "packed" / SIDECAR).read_bytes()
    assert (found.dtype, found.bits) == ("packed", None)
    with pytest.raises(InvalidArgument, match="packed already"):
        extract(tmp_path / "packed", tmp_path / "again", 8)


def test_without_a_head_it_says_what_to_do(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "mimo", head=False)
    with pytest.raises(FailedPrecondition, match="--train"):
        extract(source, tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda head: head.pop("mtp.norm.weight"), r"missing: mtp\.norm"),
        (lambda head: head.update({"mtp.extra.weight": head["mtp.norm.weight"]}), r"unused: mtp\.extra"),
        (lambda head: head.update({"mtp.norm.weight": store(np.zeros(64, np.float32))}), "all zero"),
        (lambda head: head.update({"mtp.norm.weight": store(np.full(64, np.nan))}), "not finite"),
    ],
)
def test_a_head_that_is_not_whole_is_refused_by_name(change: Any, said: str, tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "qwen3_5", edit=change)
    with pytest.raises(FailedPrecondition, match=said):
        extract(source, tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


def _ambiguous(head: dict[str, Stored]) -> None:
    """Norms whose middle lies half-way between both conventions: only the body's own can tell."""
    for name, one in list(head.items()):
        if "norm" in name:
            values = np.frombuffer(one.data, np.uint16).astype(np.uint32) << 16
            head[name] = store(0.5 + values.view(np.float32) / 8)


def test_an_open_convention_is_decided_beside_the_source_and_written_down(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "qwen3_5", edit=_ambiguous)
    _, found = forge(source, tmp_path / "pack")
    assert found.settings["norm_convention"] == "zero_centred"
    assert np.array_equal(run_head(source), run_head(tmp_path / "pack"))


def test_a_pack_that_is_forged_again_does_not_change_its_norms(tmp_path: Path) -> None:
    forge(ZOO / "qwen3_5", tmp_path / "once")
    forge(tmp_path / "once", tmp_path / "twice")
    assert contents(tmp_path / "once") == contents(tmp_path / "twice")


def test_what_the_sources_contract_says_of_its_head_is_carried_and_nothing_else(tmp_path: Path) -> None:
    source = shutil.copytree(ZOO / "mimo", tmp_path / "source")
    contract = {
        "mtp_depth_max": 3, "mtp_contract": {"base_hidden_variant": "post_norm", "mtp_position_mode": "cache"},
        "speed_evidence": {"verdict": "mtp_depth_wins"}, "mtplxd": {"format": 1, "verification": {"passed": True}},
    }  # fmt: skip
    (source / "mtplx_runtime.json").write_text(json.dumps(contract))
    _, found = forge(source, tmp_path / "pack")
    manifest = read_manifest(tmp_path / "pack")
    assert manifest is not None
    assert (found.settings["tap"], found.depth_max, manifest.depth_max) == ("post", 3, 3)
    assert manifest.fields["mtp_contract"]["mtp_position_mode"] == "cache"
    assert manifest.verification == {}
    assert "speed_evidence" not in manifest.fields


def test_a_drafter_stays_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "gemma4")
    published = contents(source / "assistant")
    for name in ("pytorch_model.bin", "drafter.gguf", "modeling.py", "LICENSES/MIT.txt"):
        (source / "assistant" / name).parent.mkdir(exist_ok=True)
        (source / "assistant" / name).write_bytes(b"not read")
    _, found = forge(source, tmp_path / "pack")
    pack = read_pack(tmp_path / "pack")
    assert pack.assistant is not None
    assert contents(tmp_path / "pack" / "assistant") == published
    assert found.file == "assistant/model.safetensors"


def test_running_it_again_gives_the_same_bytes(tmp_path: Path) -> None:
    forge(ZOO / "qwen3_5", tmp_path)
    once = contents(tmp_path)
    extract(ZOO / "qwen3_5", tmp_path)
    assert contents(tmp_path) == once


@pytest.mark.parametrize("calls", [0, 3, 15])
def test_cancelled_at_any_time_it_leaves_no_half_file(calls: int, tmp_path: Path) -> None:
    with pytest.raises(Cancelled):
        extract_head(ZOO / "qwen3_5", tmp_path, None, False, silent, count_to(calls))
    assert contents(tmp_path) == {}


def test_progress_counts_every_byte_once(tmp_path: Path) -> None:
    listener = Listener()
    found = extract_head(ZOO / "mimo", tmp_path, None, False, listener.tell, never)
    assert [words[0] for words in listener.told] == ["extract"] * found.tensors
    assert listener.told[-1][1] == listener.told[-1][2] == found.bytes
