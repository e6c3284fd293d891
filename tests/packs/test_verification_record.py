"""A verification record makes a pack `verified` for exactly the files it names, and nothing else does."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.packs.detector import detect_head
from mtplxd.packs.manifest import FILE_NAME
from mtplxd.packs.pack import Pack, read_pack
from mtplxd.packs.tiers import judge
from mtplxd.packs.verified import fingerprint_of, save_verification
from support.tiny_pack import make_tiny_pack
from support.verifications import passing_findings

ZOO = Path(__file__).parents[1] / "data" / "zoo"


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return read_pack(make_tiny_pack(tmp_path / "tiny"))


def record_for(pack: Pack, **changed: Any) -> dict[str, Any]:
    depths = list(range(detect_head(pack).depth_max + 1))
    return {**passing_findings(), "fingerprint": fingerprint_of(pack), "depths": depths, **changed}


def tier_of(pack: Pack) -> tuple[str, list[str]]:
    return judge(read_pack(pack.path))


def flip_last_bit(path: Path) -> None:
    """Changes one weight, keeping size and modification time as they were."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_record_of_these_files_verifies_the_pack(pack: Pack) -> None:
    assert tier_of(pack) == ("unverified", ["no verification record for these files"])
    save_verification(pack, record_for(pack))
    assert tier_of(pack) == ("verified", ["verified on 2026-01-31"])


@pytest.mark.parametrize(
    ("file", "part"), [("model.safetensors", "body"), ("mtp.safetensors", "head")], ids=["body", "head"]
)
def test_one_changed_weight_makes_it_unverified_and_says_which(pack: Pack, file: str, part: str) -> None:
    save_verification(pack, record_for(pack))
    assert tier_of(pack)[0] == "verified"
    flip_last_bit(pack.path / file)
    assert tier_of(pack) == ("unverified", [f"its {part} is not the one that was verified"])
    flip_last_bit(pack.path / file)
    assert tier_of(pack)[0] == "verified"


def test_a_changed_config_is_another_body(pack: Pack) -> None:
    save_verification(pack, record_for(pack))
    config = json.loads((pack.path / "config.json").read_text())
    (pack.path / "config.json").write_text(json.dumps({**config, "rope_theta": 5e5}))
    assert tier_of(pack)[0] == "unverified"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"passed": False}, "its verification did not pass"),
        ({"passed": "yes"}, "its verification did not pass"),
        ({"fingerprint": None}, "its body is not the one that was verified"),
        ({"depths": [0, 1, 2]}, "it was not verified at every depth up to 8"),
        ({"depths": 8}, "it was not verified at every depth up to 8"),
    ],
)
def test_a_record_that_says_less_verifies_nothing(pack: Pack, changed: dict[str, Any], reason: str) -> None:
    save_verification(pack, record_for(pack, **changed))
    tier, reasons = tier_of(pack)
    assert tier == "unverified"
    assert reason in reasons


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"date": "long ago"}, "no date"),
        ({"shape_noise": float("nan")}, "no shape_noise"),
        ({"greedy": {"tokens": 768, "divergences": 9, "near_ties": 0}}, "found 9 greedy texts that part"),
        ({"coupled": {"tokens": 1536, "divergences": 1, "near_ties": 0}}, "found 1 coupled texts that part"),
        (
            {"coupled": {"tokens": 1536, "divergences": 0, "near_ties": 16}},
            "found 16 near-ties in 1536 coupled",
        ),
        ({"greedy": {"tokens": 0, "divergences": 0, "near_ties": 0}}, "compared no greedy texts"),
        ({"greedy": {"tokens": 768, "divergences": False, "near_ties": 0}}, "compared no greedy texts"),
        ({"greedy": {"tokens": 768}}, "compared no greedy texts"),
        ({"greedy": [768, 0, 0]}, "compared no greedy texts"),
        ({"greedy": {"tokens": 10**400, "divergences": 0, "near_ties": 1}}, "compared no greedy texts"),
        ({"shape_noise": float("inf")}, "no shape_noise"),
        ({"law": {"tokens": 2016, "p_value": 10**400, "power": 1.0}}, "p_value is not 0.001 to 1"),
        ({"law": None}, "tested no law"),
        ({"law": {"tokens": 2016, "p_value": 1e-9, "power": 1.0}}, "p_value is not 0.001 to 1"),
        ({"law": {"tokens": 2016, "p_value": "0.5", "power": 1.0}}, "p_value is not 0.001 to 1"),
        ({"law": {"tokens": 2016, "p_value": 0.5, "power": 0.1}}, "power is not 0.8 to 1"),
        ({"law": {"tokens": 2016, "p_value": 0.5}}, "power is not 0.8 to 1"),
        ({"depths": [False, True, 2, 3, 4, 5, 6, 7, 8]}, "not verified at every depth"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_record_whose_numbers_do_not_say_that_it_passed_is_not_believed(
    pack: Pack, changed: dict[str, Any], reason: str
) -> None:
    """Whatever its own word for it: anybody can write into the file."""
    record = {name: value for name, value in record_for(pack, **changed).items() if value is not None}
    save_verification(pack, record)
    tier, reasons = tier_of(pack)
    assert tier == "unverified"
    assert len(reasons) == 1
    assert reason in reasons[0]


@pytest.mark.parametrize("part", ["date", "shape_noise", "greedy", "coupled", "law"])
def test_a_record_that_lacks_a_part_is_not_believed(pack: Pack, part: str) -> None:
    record = record_for(pack)
    del record[part]
    save_verification(pack, record)
    assert tier_of(pack)[0] == "unverified"


def test_a_record_never_makes_a_broken_head_whole(pack: Pack) -> None:
    save_verification(pack, record_for(pack))
    manifest = json.loads((pack.path / FILE_NAME).read_text())
    manifest["mtplxd"]["fingerprint"]["body"] = "sha256:another"
    (pack.path / FILE_NAME).write_text(json.dumps(manifest))
    assert tier_of(pack)[0] == "incompatible"


def test_fields_that_nobody_here_knows_are_kept(pack: Pack) -> None:
    (pack.path / FILE_NAME).write_text(
        json.dumps({"speed_evidence": [1], "mtplxd": {"format": 1, "later": 2}})
    )
    save_verification(read_pack(pack.path), record_for(pack))
    written = json.loads((pack.path / FILE_NAME).read_text())
    assert written["speed_evidence"] == [1]
    assert written["mtplxd"]["later"] == 2
    assert written["mtplxd"]["verification"]["passed"] is True
    save_verification(read_pack(pack.path), record_for(pack, date="2026-02-01"))
    assert tier_of(pack) == ("verified", ["verified on 2026-02-01"])


def test_a_record_that_cannot_be_written_leaves_the_old_one(pack: Pack) -> None:
    save_verification(pack, record_for(pack))
    (pack.path / f".{FILE_NAME}.{os.getpid()}.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        save_verification(pack, record_for(pack, date="2026-02-01"))
    assert tier_of(pack) == ("verified", ["verified on 2026-01-31"])


def test_a_pack_knows_the_files_that_changed_since_it_was_read(pack: Pack) -> None:
    assert pack.changed_files == ()
    flip_last_bit(pack.path / "model.safetensors")
    assert pack.changed_files == (pack.path / "model.safetensors",)
    (pack.path / "mtp.safetensors").unlink()
    assert len(pack.changed_files) == 2


def test_a_head_that_was_replaced_is_another(pack: Pack, tmp_path: Path) -> None:
    before = fingerprint_of(pack)
    other = make_tiny_pack(tmp_path / "other", seed=1)
    data = np.frombuffer((other / "mtp.safetensors").read_bytes(), np.uint8)
    (pack.path / "mtp.safetensors").write_bytes(data.tobytes())
    after = fingerprint_of(read_pack(pack.path))
    assert (after["body"], after["head"] == before["head"]) == (before["body"], False)


def test_a_head_that_is_fed_otherwise_is_not_the_one_that_was_verified(tmp_path: Path) -> None:
    pack = read_pack(shutil.copytree(ZOO / "mimo", tmp_path / "mimo"))
    save_verification(pack, record_for(pack))
    assert tier_of(pack)[0] == "verified"
    file = pack.path / FILE_NAME
    manifest = json.loads(file.read_text())
    manifest["mtplxd"]["head"] = {"tap": "post", "dtype": "bfloat16"}
    file.write_text(json.dumps(manifest))
    assert tier_of(pack) == ("unverified", ["its head is fed otherwise than when it was verified"])
    manifest["mtplxd"]["verification"]["head_settings"] = {"tap": "post"}
    file.write_text(json.dumps(manifest))
    assert tier_of(pack)[0] == "verified"
