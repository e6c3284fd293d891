"""A few kills of a build through the command that does the full count, and what it calls lost, half or different."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.runs import Run, create_run
from mtplxd.packs.manifest import Manifest, read_manifest, write_manifest
from mtplxd.paths import Home
from support.tiny_pack import make_tiny_pack

BENCH = Path(__file__).parent
LIMIT_S = 300


def test_a_build_that_is_killed_makes_what_one_makes_that_is_not(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "build_kills.py"), "--kills", "2", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "build_kills.json").read_text())
    assert list(found["samples"]) == [f"kill {number}" for number in range(2)]
    assert found["faults"] == 0
    assert found["kills"] >= 2


class Ended:
    """A home in which a build has ended well, and what one makes that nobody killed."""

    def __init__(self, folder: Path) -> None:
        from build_looks import read_pack_files

        self.home = folder
        Home(folder).create()
        recipe = BuildRecipe(source="org/model", name="mine")
        self.run: Run = create_run(Home(folder), recipe, 1.8e9, "0a1b2c")
        state = self.run.state().begin_step("fetch", "d", 1.0).finish_step("fetch", {}, "", {}, 2.0)
        self.run.write(state.win(3.0))
        self.pack = make_tiny_pack(folder / "packs" / "mine")
        provenance = {"run": self.run.id, "forged_at": "now", "source_repo": "org/model"}
        write_manifest(self.pack, Manifest({"forge_provenance": provenance, "speed_evidence": {"rows": [1]}}))
        self.reference = read_pack_files(self.pack)

    def manifest(self, **changed: Any) -> None:
        manifest = read_manifest(self.pack)
        assert manifest is not None
        write_manifest(self.pack, Manifest({**manifest.fields, **changed}))

    def begin_again(self) -> None:
        state = self.run.state()
        record = replace(state.steps["fetch"], begun=2)
        self.run.write(replace(state, steps={"fetch": record}))


def _other_run(ended: Ended) -> None:
    provenance = {"run": "another", "forged_at": "later", "source_repo": "org/model"}
    ended.manifest(forge_provenance=provenance, speed_evidence={"rows": [2]})


def _half_a_pack(ended: Ended) -> None:
    (ended.home / "packs" / "other").mkdir()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda _: None, ""),
        (_other_run, ""),
        (lambda ended: ended.begin_again(), "finished steps ran again: ['fetch']"),
        (lambda ended: (ended.pack / "tokenizer.json").write_text("{}"), "other files: tokenizer.json"),
        (lambda ended: (ended.pack / "more").write_text(""), "other files: more"),
        (lambda ended: ended.manifest(arch_id="x"), "other contract: arch_id"),
        (
            lambda ended: (ended.run.folder / "pack").mkdir(),
            "the run left ['pack', 'recipe.json', 'state.json']",
        ),
        (
            lambda ended: (ended.home / "packs" / ".trash-mine").mkdir(),
            "unfinished folders are left: ['.trash-mine']",
        ),
        (lambda ended: make_tiny_pack(ended.home / "packs" / "other"), "there is another pack"),
    ],
    ids=["well", "another run", "twice", "bytes", "more", "contract", "left", "hidden", "another pack"],
)
def test_what_a_build_must_have_made_in_the_end(
    tmp_path: Path, harm: Callable[[Ended], object], says: str
) -> None:
    from build_looks import look_at_end

    ended = Ended(tmp_path / "home")
    harm(ended)
    fault = look_at_end(ended.home, ended.run, "depth_wins", {"fetch": 1}, ended.reference)
    assert fault.startswith(says)
    assert bool(fault) == bool(says)
    assert look_at_end(ended.home, ended.run, "throttled", {}, ended.reference).startswith(
        "the build did not win"
    )


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda _: None, ""),
        (lambda ended: ended.begin_again(), "finished steps ran again"),
        (lambda ended: ended.run.state_file.write_text("{"), "the state is lost"),
        (_half_a_pack, "half a pack is left"),
    ],
    ids=["well", "twice", "state", "half"],
)
def test_what_a_kill_may_leave(tmp_path: Path, harm: Callable[[Ended], object], says: str) -> None:
    from build_looks import look_at_kill

    ended = Ended(tmp_path / "home")
    harm(ended)
    fault = look_at_kill(ended.home, ended.run, {"fetch": 1})
    assert fault.startswith(says)
    assert bool(fault) == bool(says)
