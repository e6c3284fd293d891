"""Readings of memory, and what packs say about sampling and depth."""

from __future__ import annotations

import json
import mmap
from pathlib import Path

import pytest
from mtplxd.packs.manifest import Manifest, write_manifest
from mtplxd.packs.pack import read_pack
from mtplxd.residency.catalog import SamplerDefaults, recommended_depth, sampler_defaults
from mtplxd.residency.memory import SystemMemory, parse_vm_stat
from support.tiny_pack import make_tiny_pack

VM_STAT = """\
Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               10.
Pages active:                         100000.
Pages inactive:                           20.
Pages speculative:                         3.
Pages throttled:                           0.
Pages purgeable:                           4.
"Translation faults":              123456789.
"""


def test_this_process_uses_memory_of_a_machine_that_has_some() -> None:
    memory = SystemMemory()
    assert 0 < memory.used() < memory.total
    assert 0 < memory.free() <= memory.total


def test_memory_in_use_grows_with_what_is_held() -> None:
    memory = SystemMemory()
    before = memory.used()
    with mmap.mmap(-1, 64 << 20) as held:  # never from what the process already has
        held.write(b"x" * (64 << 20))
        assert memory.used() - before > 48 << 20


def test_macos_counts_what_it_can_reclaim() -> None:
    assert parse_vm_stat(VM_STAT) == 16384 * 37


def test_a_pack_without_recommendations_has_none(tmp_path: Path) -> None:
    pack = read_pack(make_tiny_pack(tmp_path / "tiny"))
    assert sampler_defaults(pack) == SamplerDefaults()
    assert recommended_depth(pack) is None


def test_the_contract_file_goes_before_the_generation_config(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.2, "top_k": 20}))
    contract = {"sampler": {"temperature": 0.6, "top_p": "high"}, "recommended_mtp_depth": 2}
    write_manifest(folder, Manifest(contract))
    pack = read_pack(folder)
    assert sampler_defaults(pack) == SamplerDefaults(temperature=0.6, top_p=None, top_k=20)
    assert recommended_depth(pack) == 2


def test_penalties_come_from_the_contract_else_the_generation_config_and_the_drafts_from_our_block(
    tmp_path: Path,
) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    config = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": True, "min_p": 0.1}
    (folder / "generation_config.json").write_text(json.dumps(config))
    contract = {
        "sampler": {"repetition_penalty": 1.1, "temperature": 10**400},
        "mtplxd": {"draft_sampler": {"temperature": 0, "top_k": 12}},
    }
    write_manifest(folder, Manifest(contract))
    assert sampler_defaults(read_pack(folder)) == SamplerDefaults(
        repetition_penalty=1.1, presence_penalty=0.5, min_p=0.1, draft_temperature=0.0, draft_top_k=12
    )


@pytest.mark.parametrize(
    "senseless", [{"draft_sampler": 7}, {"draft_sampler": {"temperature": "low", "top_k": -1}}]
)
def test_a_draft_sampler_that_says_nothing_is_none(tmp_path: Path, senseless: dict[str, object]) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    write_manifest(folder, Manifest({"mtplxd": senseless}))
    assert sampler_defaults(read_pack(folder)) == SamplerDefaults()


def test_the_fields_own_recommendations_are_read(tmp_path: Path) -> None:
    folder = make_tiny_pack(tmp_path / "tiny")
    contract = {
        "recommended_draft_sampler": {"temperature": 0.4, "top_k": 20},
        "recommended_generation_mode": "ar",
        "recommended_mtp_depth": 3,
    }
    write_manifest(folder, Manifest(contract))
    pack = read_pack(folder)
    assert sampler_defaults(pack) == SamplerDefaults(draft_temperature=0.4, draft_top_k=20)
    assert recommended_depth(pack) == 0
    write_manifest(folder, Manifest(contract).with_ours(draft_sampler={"temperature": 0.5}))
    assert sampler_defaults(read_pack(folder)).draft_temperature == 0.5
