"""A probe says from headers whether a pack can be made of a checkpoint, what it takes, and what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mtplxd.errors import DataLoss, FailedPrecondition, NotFound, Unavailable
from mtplxd.forge.probing import Probe, document, probe
from mtplxd.packs.hub.record import PullRecord, describe, write_record
from mtplxd.packs.inspection import Room, inspect_pack
from mtplxd.packs.pack import read_pack
from mtplxd.paths import Home, HuggingFace
from support.checkpoint_files import Stored, write_tensors
from support.families import write_checkpoint
from support.hub_server import Fault, HubServer
from support.published import NAME, put_in_cache
from support.published_configs import KIMI_K2
from support.published_keys import RELEASES, Release, body_keys, write_release, write_sparse
from support.tiny_pack import make_tiny_pack
from support.zoo import NAMES, ZOO

GIB = 1 << 30
HEAD_TENSORS = {"qwen3_5": 15, "mimo": 16, "glm4_moe_lite": 44}
ROOM = Room(total=64 * GIB, budget=None, widens=False)
Ask = Callable[..., Probe]


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as hub:
        yield hub


@pytest.fixture
def ask(home: Home, hugging_face: HuggingFace) -> Ask:
    def run(name: str | Path, room: Room = ROOM, hugging_face: HuggingFace = hugging_face) -> Probe:
        found = probe(str(name), home, hugging_face, room)
        assert json.loads(json.dumps(document(found))) == document(found)
        assert found.reasons
        assert found.next
        return found

    return run


def files_of(folder: Path) -> dict[str, bytes | Path]:
    """A folder's files to publish; weights stay where they are."""
    return {
        path.name: path if path.suffix == ".safetensors" else path.read_bytes() for path in folder.iterdir()
    }


def change_config(folder: Path, **fields: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return folder


@pytest.mark.parametrize("family", NAMES)
def test_a_checkpoint_with_a_head_is_forgeable_here_and_afar(hub: HubServer, ask: Ask, family: str) -> None:
    files = files_of(ZOO / family)
    hub.add(NAME, files)
    here, afar = ask(ZOO / family), ask(NAME)
    assert here.verdict == afar.verdict == "forgeable"
    assert (here.family, here.head) == (afar.family, afar.head)
    assert here.head is not None
    assert here.head["tensors"] == HEAD_TENSORS[family]
    assert here.bytes_body + here.bytes_head == afar.bytes_body + afar.bytes_head > 1_000_000
    assert here.depth_max > 0
    assert here.bytes_source == sum(
        (ZOO / family / name).stat().st_size for name in files if name != "expected.json"
    )
    assert (here.bytes_download, afar.bytes_download) == (0, here.bytes_source)
    assert here.next == f"mtplx forge build {ZOO / family} --name {family}-mtp"
    assert afar.next == f"mtplx forge build {NAME} --name name-mtp"
    assert afar.revision == hub.repositories[NAME].revisions["main"].sha
    assert here.can_build(train=False)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_it_never_says_otherwise_than_inspect(ask: Ask, tmp_path: Path, release: Release) -> None:
    folder = write_release(tmp_path / "pack", release.config, release.keys)
    said = inspect_pack(read_pack(folder), str(folder), ROOM)
    agree = {
        "unverified": "forgeable",
        "no-mtp-head": "no_mtp_head",
        "incompatible": "unsupported_source",
    }
    found = ask(folder)
    assert found.verdict == agree[said.tier]
    assert found.depth_max == (said.head.depth_max if said.tier != "incompatible" else found.depth_max)


def test_not_a_weight_is_asked_for(hub: HubServer, ask: Ask, tmp_path: Path) -> None:
    release = next(release for release in RELEASES if release.count == 1564)
    folder = write_release(tmp_path / "pack", release.config, release.keys)
    hub.add(NAME, files_of(folder))
    found = ask(NAME)
    assert found.verdict == "forgeable"
    assert found.bytes_download > 1_000_000_000
    assert hub.bytes_sent < 1_000_000


def test_a_model_without_a_head_needs_training(ask: Ask, tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "plain", head=False)
    found = ask(folder)
    assert found.verdict == "no_mtp_head"
    assert found.next.endswith("--name plain-mtp --train")
    assert (found.can_build(train=False), found.can_build(train=True)) == (False, True)
    assert (found.depth_max, found.bytes_head) == (0, 0)


def test_a_head_that_was_trained_for_one_body_is_none_for_another(ask: Ask, tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "trained")
    assert not (folder / "mtplx_runtime.json").exists()
    found = ask(folder)
    assert (found.verdict, found.next.endswith("--train")) == ("no_mtp_head", True)
    assert found.reasons == ("its head was trained for exactly these weights, not for others made of them",)
    assert (found.can_build(train=False), found.can_build(train=True)) == (False, True)


def test_what_sees_is_told_before_anything_is_fetched(hub: HubServer, ask: Ask) -> None:
    hub.add(NAME, files_of(ZOO / "qwen3_5"))
    [here], [afar] = (
        [note for note in ask(of).notes if "text only" in note] for of in (ZOO / "qwen3_5", NAME)
    )
    assert here == afar
    assert here.startswith("text only: 3 tensors (")
    assert not [note for note in ask(ZOO / "mimo").notes if "text only" in note]


def test_a_config_that_declares_a_head_proves_none(ask: Ask, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "kept", "glm4_moe_lite", head=False)
    found = ask(folder)
    assert found.verdict == "no_mtp_head"
    assert any("declares a head" in note for note in found.notes)


def test_a_model_whose_headers_are_large_and_that_has_no_head(ask: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "k2"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(KIMI_K2))
    write_sparse(folder / "model.safetensors", body_keys(KIMI_K2))
    assert ask(folder).verdict == "no_mtp_head"


def test_a_pack_of_the_home_is_one_already(ask: Ask, home: Home) -> None:
    make_tiny_pack(home.packs / "tiny")
    (home.packs / "tiny" / "mtplx_runtime.json").write_text(json.dumps({"mtplxd": {"format": 1}}))
    found = ask("tiny")
    assert (found.verdict, found.next) == ("already_a_pack", "mtplx tune tiny")
    assert found.can_build(train=False)


def test_a_pack_on_the_hub_is_one_already(hub: HubServer, ask: Ask, tmp_path: Path) -> None:
    hub.add(NAME, {**files_of(make_tiny_pack(tmp_path / "tiny")), "mtplx_runtime.json": b"{}"})
    assert (ask(NAME).verdict, ask(NAME).next) == ("already_a_pack", f"mtplx pull {NAME}")


def test_a_pulled_pack_that_was_damaged_is_told_as_that(ask: Ask, home: Home) -> None:
    folder = make_tiny_pack(home.packs / "org--name")
    kept = {path.name: replace(describe(path, "a" * 40), size=1) for path in folder.iterdir()}
    write_record(folder, PullRecord(NAME, "c" * 40, "huggingface.co", kept))
    with pytest.raises(DataLoss, match="pull it again"):
        ask(NAME)


UNSUPPORTED: dict[str, tuple[dict[str, object], str]] = {
    "family": ({"model_type": "bloom"}, "model_type bloom is not one"),
    "rollback": ({"model_type": "recurrent_gemma"}, "cannot take tokens back"),
    "code": ({"model_file": "own.py"}, "asks to run code of its own"),
    "packing": ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "packed by gptq"),
    "no length": ({"max_position_embeddings": None}, "longest sequence"),
}


@pytest.mark.parametrize(("fields", "why"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_what_cannot_be_forged_says_why(
    ask: Ask, tmp_path: Path, fields: dict[str, object], why: str
) -> None:
    found = ask(change_config(make_tiny_pack(tmp_path / "odd", head=False), **fields))
    assert found.verdict == "unsupported_source"
    assert any(why in reason for reason in found.reasons), found.reasons
    assert not found.can_build(train=True)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"config.json": b"{}", "pytorch_model.bin": b"x"}, "pytorch_model.bin is no safetensors file"),
        ({"model-Q4.gguf": b"GGUF"}, "no model in this repository"),
        (
            {"config.json": b'{"max_position_embeddings": 8}', "model.safetensors": b"garbage!garbage!"},
            "damaged",
        ),
    ],
)
def test_other_formats_and_damage_are_unsupported_here_and_afar(
    hub: HubServer, ask: Ask, tmp_path: Path, files: dict[str, bytes], why: str
) -> None:
    hub.add(NAME, files)
    folder = tmp_path / "odd"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    for found in (ask(folder), ask(NAME)):
        assert found.verdict == "unsupported_source"
        assert why in found.reasons[0]
        assert found.needs is None
        assert not found.fits


def test_a_head_that_is_not_whole_is_refused_with_what_it_lacks(ask: Ask, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "cut", "mimo", edit=lambda head: head.pop(sorted(head)[0]) and None)
    found = ask(folder)
    assert found.verdict == "unsupported_source"
    assert any(reason.startswith("missing: ") for reason in found.reasons)


def test_fp8_is_forgeable_with_its_scales_alone(ask: Ask, tmp_path: Path) -> None:
    whole = write_checkpoint(tmp_path / "whole", "deepseek_v3", fp8=True)
    found = ask(whole)
    assert found.verdict == "forgeable"
    assert found.quantisation == {"method": "fp8", "block": [128, 128]}
    bare = {"model.embed_tokens.weight": (64, 32), "model.layers.0.mlp.up_proj.weight": (32, 32)}
    config = {"model_type": "llama", "max_position_embeddings": 8, "num_hidden_layers": 1}
    for name, keys, why in (
        ("bare", {**bare}, "without their scales: model.layers.0.mlp.up_proj.weight"),
        ("orphan", {"a.weight_scale_inv": (1, 1)}, "without their weights: a.weight_scale_inv"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        write_headers(folder / "model.safetensors", keys, fp8="mlp")
        assert any(why in reason for reason in ask(folder).reasons)


def write_headers(path: Path, keys: dict[str, tuple[int, ...]], fp8: str) -> None:
    kinds = {name: ("F8_E4M3", 1) if fp8 in name else ("F32", 4) for name in keys}
    write_tensors(
        path,
        {
            name: Stored(kinds[name][0], shape, bytes(shape[0] * shape[1] * kinds[name][1]))
            for name, shape in keys.items()
        },
    )


def test_the_licence_is_told_and_its_absence_too(ask: Ask, tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "plain", head=False)
    assert any("states no licence" in note for note in ask(folder).notes)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    found = ask(folder)
    assert found.licence == "mit"
    assert not any("licence" in note for note in found.notes)


def test_a_machine_that_is_too_small_is_seen(ask: Ask) -> None:
    large, small = ask(ZOO / "mimo"), ask(ZOO / "mimo", room=Room(total=GIB, budget=1, widens=False))
    assert (large.fits, small.fits) == (True, False)
    assert large.needs is not None
    assert large.needs.memory == max(large.needs.convert, large.needs.run) > large.bytes_body
    assert large.needs.disk == large.bytes_body + large.bytes_head
    assert document(large)["memory"]["peak"] == large.needs.memory
    widened = ask(ZOO / "mimo", room=replace(ROOM, widens=True))
    assert widened.needs is not None
    assert widened.needs.run - large.needs.run >= large.bytes_body, "halves take twice their size there"


def test_what_the_cache_holds_needs_no_download(hub: HubServer, ask: Ask, hugging_face: HuggingFace) -> None:
    files = {path.name: path.read_bytes() for path in (ZOO / "mimo").iterdir()}
    hub.add(NAME, files)
    snapshot = put_in_cache(hugging_face.cache, files, hub.repositories[NAME].revisions["main"].sha)
    assert ask(NAME).bytes_download == 0
    hub.asked.clear()
    offline = replace(hugging_face, offline=True)
    assert ask(NAME, hugging_face=offline).verdict == "forgeable"
    assert hub.asked == []
    shutil.rmtree(snapshot)
    with pytest.raises(Unavailable, match="HF_HUB_OFFLINE"):
        ask(NAME, hugging_face=offline)


def test_what_says_nothing_of_the_checkpoint_is_no_verdict(hub: HubServer, ask: Ask, tmp_path: Path) -> None:
    files = files_of(ZOO / "mimo")
    hub.add(NAME, files)
    for name in ("org/none", f"{NAME}@v9", str(tmp_path / "nowhere"), "no-such-pack"):
        with pytest.raises(NotFound):
            ask(name)
    hub.repositories[NAME].faults["config.json"] = Fault(etag="0" * 40)
    with pytest.raises(DataLoss, match="changed since it was listed"):
        ask(NAME)
    hub.repositories[NAME].faults.clear()
    hub.repositories[NAME].gated = "hf_token"
    with pytest.raises(FailedPrecondition, match="accept its terms"):
        ask(NAME)
    hub.repositories[NAME].refuses = 500
    with pytest.raises(Unavailable):
        ask(NAME)
