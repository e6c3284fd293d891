"""Steps of a build that need no model: deterministic files in little time, and an engine's words for them.

Every step notes in the home's journal when it works, so that a test can count. The home's `steer.json` says which step
is to fail, lose or wait.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mtplxd.errors import Cancelled, Unavailable
from mtplxd.forge.parts import Parts
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.packs.detector import detect_head
from mtplxd.packs.manifest import read_manifest, write_manifest
from mtplxd.packs.pack import read_pack
from mtplxd.packs.tiers import settings_of_head
from mtplxd.packs.verified import fingerprint_of, save_verification
from mtplxd.paths import resolve_home
from support.tiny_pack import make_tiny_pack
from support.verifications import passing_findings

PIECES = 6
"""Times that a step tells of itself."""
ZOO = Path(__file__).parents[1] / "data" / "zoo"
STEER = "steer.json"
Tell = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class Found:
    """What a step answers: anything with a document."""

    fields: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return self.fields


@dataclass(frozen=True)
class FakeSource:
    """As a fetch answers."""

    path: Path
    repo: str | None
    revision: str | None
    files: dict[str, str]
    licence: str | None
    bytes: int

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}


def make_source(folder: Path, *, head: bool = True) -> Path:
    """A model's folder."""
    if head:
        shutil.copytree(ZOO / "mimo", folder, ignore=shutil.ignore_patterns("expected.json"))
    else:
        make_tiny_pack(folder, head=False)
    (folder / "LICENSE").write_text("do what you like\n")
    return folder


def steer(**how: Any) -> None:
    """How builds of this home go from now on: `fail`, `lose`, `hang`, `kill` name a step, `full` one that finds the
    disk full, `pause_s` is each piece's, `verdict` is the measurement's.
    """
    (resolve_home().root / STEER).write_text(json.dumps(how))


def _steered() -> dict[str, Any]:
    path = resolve_home().root / STEER
    found = json.loads(path.read_text()) if path.exists() else {}
    assert isinstance(found, dict)
    return found


def journal() -> list[str]:
    """The steps that worked in this home, in order."""
    file = resolve_home().root / "journal"
    return file.read_text().split() if file.exists() else []


def _work(step: str, tell: Tell, cancelled: Callable[[], bool]) -> dict[str, Any]:
    """Notes the step and takes its time; fails or hangs where it was told to."""
    with open(resolve_home().root / "journal", "a") as file:
        file.write(f"{step}\n")
    how = _steered()
    for piece in range(PIECES):
        tell(step, piece, PIECES, f"piece {piece}")
        time.sleep(how.get("pause_s", 0.0))
        if cancelled():
            raise Cancelled("stopped before it was done", step)
    while _steered().get("hang") == step:
        tell(step, PIECES - 1, PIECES, "hangs")
        time.sleep(0.02)
        if cancelled():
            raise Cancelled("stopped before it was done", step)
    if how.get("kill") == step:
        os.kill(os.getpid(), 9)
    _fill_disk(step)
    if how.get("fail") == step:
        raise Unavailable(f"{step} cannot go on", "as it was told", "try again")
    tell(step, PIECES, PIECES, "")
    return how


def _fill_disk(step: str) -> None:
    if _steered().get("full") == step:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.safetensors")


def _copy(source: Path, out: Path, names: list[str], tell: Tell, step: str) -> None:
    """In pieces, as a conversion does."""
    for at, name in enumerate(names):
        tell(step, at, len(names), name)
        shutil.copyfile(source / name, out / name)


def fetch(
    ref: str, folder: Path, home: Any, hugging_face: Any, tell: Tell, cancelled: Callable[[], bool]
) -> FakeSource:
    del home, hugging_face
    source = Path(ref)
    if source.is_dir():
        files = _hashes(source)
    else:  # a repository: what the file says, brought here
        source = Path(os.environ["FAKE_HUB"]) / ref.replace("/", "--")
        _work("fetch", tell, cancelled)
        for name in sorted(path.name for path in source.iterdir()):
            shutil.copyfile(source / name, folder / name)
        return FakeSource(folder, ref, "c0ffee", _hashes(folder), "mit", 1)
    _work("fetch", tell, cancelled)
    return FakeSource(source, None, None, files, None, 1)


def convert(source: Path, out: Path, plan: Any, tell: Tell, cancelled: Callable[[], bool]) -> Found:
    """The body with its head still in it: telling them apart is no matter of a build's order."""
    how = _work("convert", tell, cancelled)
    names = [file.name for file in sorted(source.iterdir()) if file.suffix != "" and file.name != "README.md"]
    for at, name in enumerate(names):
        tell("convert", at, len(names), name)
        shutil.copyfile(source / name, out / name)
    left = {
        "left_out": {"visual.patch": 70, "visual.norm": 7},
        "notes": ["text only: 2 tensors are left out"],
    }
    return Found({"lossless": how.get("lose") != "convert", "plan": plan, **left})


def extract(
    source: Path, out: Path, bits: int | None, allowed: bool, tell: Tell, cancelled: Callable[[], bool]
) -> Found:
    del source
    _work("extract", tell, cancelled)
    (out / "extracted.json").write_text(json.dumps([bits, allowed]))
    return Found({"file": "extracted.json"})


def calibrate(folder: Path, tell: Tell, cancelled: Callable[[], bool]) -> Found:
    del folder
    how = _work("calibrate", tell, cancelled)
    if how.get("lose") == "calibrate":
        return Found({"status": "calibration_failed", "message": "nothing was accepted", "settings": {}})
    return Found(
        {"status": "confirmed", "message": "as it was", "settings": {"norm_convention": "as_stored"}}
    )


def record_calibration(folder: Path, found: dict[str, Any]) -> None:
    """As the real one does: how the head is fed goes into the contract."""
    manifest = read_manifest(folder)
    assert manifest is not None
    write_manifest(folder, manifest.with_ours(head={**(manifest.ours["head"] or {}), **found["settings"]}))


def train(
    folder: Path,
    out: Path,
    plan: Any,
    tell: Tell,
    cancelled: Callable[[], bool],
    should_wait: Callable[[], str],
) -> Found:
    del folder
    assert isinstance(should_wait(), str)
    how = _work("train", tell, cancelled)
    if how.get("lose") == "train":
        return Found({"verdict": "training_failed", "reason": "no better than before", "sidecar": ""})
    (out / "training").mkdir(exist_ok=True)
    (out / "training" / "trained.json").write_text(json.dumps(plan, default=str))
    (out / "training" / "checkpoint").write_text("of no use to a pack")
    return Found(
        {"origin": "trained", "verdict": "trained", "reason": "", "sidecar": "training/trained.json"}
    )


class FakeEngine:
    """Measures and verifies without a model."""

    def __init__(self) -> None:
        self.released: list[Path] = []

    def measure(
        self, pack: Path, recipe: BuildRecipe, tell: Tell, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        del pack
        how = _work("measure", tell, cancelled)
        verdict = how.get("verdict", "depth_wins")
        depth = (recipe.depths or (2,))[0] if verdict == "depth_wins" else None
        rows = [{"depth": 0, "tok_s": 50.0, "ratio": 1.0}, {"depth": 2, "tok_s": 71.0, "ratio": 1.42}]
        told = {"machine": {"chip": "M4"}, "drift": {"start": 50.0}, "notes": ["depth 9 clipped to 8"]}
        return {"verdict": verdict, "message": f"so it is: {verdict}", "depth": depth, "rows": rows, **told}

    def verify(
        self, pack: Path, recipe: BuildRecipe, tell: Tell, cancelled: Callable[[], bool]
    ) -> dict[str, Any]:
        del recipe
        how = _work("verify", tell, cancelled)
        if how.get("lose") == "verify":
            return {"passed": False, "failures": ["greedy: 3 texts part"], "record": None}
        found = read_pack(pack)
        record = {
            **passing_findings(),
            "fingerprint": fingerprint_of(found),
            "depths": list(range(100)),
            "head_settings": settings_of_head(found, detect_head(found)),
        }
        save_verification(found, record)
        return {"passed": True, "failures": [], "record": record}

    def release(self, pack: Path) -> None:
        self.released.append(pack)


def draft_card(facts: dict[str, Any]) -> str:
    _fill_disk("seal")
    of = f"{facts['source']}, {facts['verdict']}, {facts['licence_file']}"
    return f"# {facts['name']}\n\nfrom {of}\n{'; '.join(facts['notes'])}\n"


def probe(name: str, home: Any, hugging_face: Any, room: Any) -> dict[str, Any]:
    del home, hugging_face
    if name == "org/missing":
        raise Unavailable("the Hub cannot be reached", "huggingface.co", "check the network")
    return {"verdict": "forgeable", "reasons": [], "name": name, "fits_this_machine": room.available > 0}


def publish(
    pack: Any,
    repo: str,
    hugging_face: Any,
    dry_run: bool,
    tell: Tell,
    cancelled: Callable[[], bool],
    *,
    home: Any,
) -> Found:
    del home, hugging_face, cancelled
    tell("publish", 1, 2, "mtp.safetensors")
    while _steered().get("hang") == "publish":
        time.sleep(0.02)
    return Found({"repo": repo, "pack": pack.name, "dry_run": dry_run})


def _hashes(folder: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if file.is_file()
    }


def judge_quality(quality: Found | None, floor: float, lossless: bool) -> str | None:
    if lossless or quality is None or (top1 := quality.fields["top1"]) >= floor:
        return None
    return f"quality_failed: top-1 agreement {top1} is below {floor}"


FAKE = Parts(
    probe=probe,
    probe_document=dict,
    fetch=fetch,
    storage_faults=lambda _pack: [],
    plan_body=lambda **named: named,
    convert=convert,
    held_out_texts=lambda: ["a text"],
    measure_quality=lambda *_: Found({"kl": 0.5, "top1": 0.5, "tokens": 100}),
    judge_quality=judge_quality,
    extract=extract,
    calibrate=calibrate,
    record_calibration=record_calibration,
    plan_training=lambda **named: named,
    train_new_head=train,
    fine_tune_head=train,
    card_facts=lambda **named: named,
    draft_card=draft_card,
    publish=publish,
)
