"""`mtplx inspect`: one report for people, one document for programs, without a daemon, wherever the checkpoint is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from mtplxd.packs.pack import read_pack
from mtplxd.packs.verified import fingerprint_of, save_verification
from support.fake_daemon import FakeDaemon
from support.hub_server import HubServer
from support.published_configs import QWEN
from support.published_keys import qwen, write_release
from support.tiny_pack import make_tiny_pack
from support.verifications import passing_findings

ZOO = Path(__file__).parents[1] / "data" / "zoo"


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, daemon: FakeDaemon) -> None:
    """16 GiB of memory and no daemon: nothing may depend on the machine of the test, nor on anybody who answers."""
    daemon.stop()
    monkeypatch.setattr("mtplxd.packs.machine.total_memory", lambda: 16 << 30)
    monkeypatch.setattr("mtplxd.packs.machine.widens_halves", lambda: False)


def verify(folder: Path) -> Path:
    pack = read_pack(folder)
    depths = list(range(9))
    save_verification(pack, {**passing_findings(), "fingerprint": fingerprint_of(pack), "depths": depths})
    return folder


def test_the_report_is_a_line_a_fact(mtplx: Any) -> None:
    done = mtplx("inspect", str(ZOO / "glm4_moe_lite"))
    assert (done.code, done.err) == (0, "")
    assert done.out.replace(str(ZOO), "ZOO") == (
        "name      glm4_moe_lite\n"
        "path      ZOO/glm4_moe_lite\n"
        "tier      unverified\n"
        "because   no verification record for these files\n"
        "runs      not as it is: run `mtplx verify ZOO/glm4_moe_lite`, or add --force\n"
        "family    glm4_moe_lite\n"
        "head      appended, model.layers.3.*, 44 tensors, 1 layer, depth up to 8\n"
        "takes     embed_tokens from model.embed_tokens.weight, lm_head from lm_head.weight\n"
        "quantised no\n"
        "size      2.2 MiB (body 1.5 MiB, head 696 KiB)\n"
        "memory    fits: 5.3 MiB needed, 11.8 GiB to be had for one model\n"
        "context   512 tokens\n"
    )


def test_missing_tensors_are_counted_and_named(mtplx: Any, tmp_path: Path) -> None:
    folder = write_release(tmp_path / "half", QWEN, dict(list(qwen(QWEN).items())[:7]))
    done = mtplx("inspect", str(folder))
    assert done.code == 0
    assert "tier      incompatible\n" in done.out
    assert "missing   8: mtp.layers.0.mlp.down_proj.weight, " in done.out
    assert " and 2 more\n" in done.out


def test_a_note_is_printed(mtplx: Any, tmp_path: Path) -> None:
    config = {**QWEN, "auto_map": {"AutoModel": "modeling.Model"}}
    done = mtplx("inspect", str(write_release(tmp_path / "pack", config, {})))
    assert "note      its config declares a head (mtp_num_hidden_layers 1)" in done.out
    assert "auto_map: AutoModel" in done.out


@pytest.mark.parametrize("flags", [(), ("--check",)])
def test_a_check_exits_3_where_an_answer_would_be_refused(
    flags: tuple[str, ...], mtplx: Any, tmp_path: Path
) -> None:
    tiny, bare = make_tiny_pack(tmp_path / "tiny"), make_tiny_pack(tmp_path / "bare", head=False)
    for folder, way_on in ((tiny, "--force"), (bare, "--plain")):
        done = mtplx("inspect", str(folder), "--json", *flags)
        assert done.document["tier"] in ("unverified", "no-mtp-head")
        assert done.code == (3 if flags else 0)
        assert (way_on in done.err) is bool(flags)
    done = mtplx("inspect", str(verify(tiny)), *flags)
    assert (done.code, done.err) == (0, "")
    assert "runs      yes\n" in done.out


def test_a_check_exits_3_for_what_does_not_fit(
    mtplx: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = verify(make_tiny_pack(tmp_path / "tiny"))
    monkeypatch.setenv("MTPLXD_MEMORY_BUDGET", "201M")
    done = mtplx("inspect", str(folder), "--check", "--json")
    assert (done.document["can_run"], done.document["fits_this_machine"], done.code) == (True, False, 3)
    assert "does not fit this machine" in done.err


def test_a_damaged_file_is_named_in_one_line(mtplx: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ZOO / "mimo", tmp_path / "mimo"))
    file = folder / "model-00002-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    done = mtplx("inspect", str(folder), "--json")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.document["error"]["code"] == "DATA_LOSS"
    assert file.name in done.document["error"]["message"]


def test_a_repository_that_is_not_here_is_judged_as_the_folder_is(
    mtplx: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = {file.name: file.read_bytes() for file in (ZOO / "mimo").iterdir() if file.is_file()}
    local = mtplx("inspect", str(ZOO / "mimo"), "--json").document
    with HubServer() as hub:
        hub.add("org/mimo", files, lfs=("*.safetensors",))
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        done = mtplx("inspect", "org/mimo", "--json")
        shown = mtplx("inspect", "org/mimo")
        missing = mtplx("inspect", "org/nothing")
    assert done.code == 0, done.err
    differing = {"ref", "name", "path", "here"}
    assert {k: v for k, v in done.document.items() if k not in differing} == {
        k: v for k, v in local.items() if k not in differing
    }
    assert (done.document["ref"], done.document["here"], local["here"]) == ("org/mimo", False, True)
    assert "runs      not as it is: `mtplx pull org/mimo` first\n" in shown.out
    assert (missing.code, missing.err.count("\n")) == (1, 1)


def test_a_record_that_cannot_be_compared_from_afar_does_not_verify(
    mtplx: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = verify(make_tiny_pack(tmp_path / "tiny"))
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert json.loads(files["mtplx_runtime.json"])["mtplxd"]["verification"]["passed"] is True
    with HubServer() as hub:
        hub.add("org/tiny", files, lfs=("*.safetensors",))
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        found = mtplx("inspect", "org/tiny", "--json").document
    assert found["tier"] == "unverified"
    assert any("pull it" in reason for reason in found["reasons"])
