"""A build from its first step to its verdict, in real worker processes, with steps that need no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mtplxd.config import parse_bytes
from mtplxd.errors import Cancelled, FailedPrecondition, InvalidArgument, ResourceExhausted, Unavailable
from mtplxd.files import locked
from mtplxd.forge.foreman import Foreman, check_resumable
from mtplxd.forge.leavings import bytes_of, settle_runs
from mtplxd.forge.news import Told
from mtplxd.forge.outcome import Outcome, outcome_of
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.runs import Run, create_run
from mtplxd.forge.state import BEGUN, FAILED
from mtplxd.packs.manifest import read_manifest
from mtplxd.packs.pack import read_pack
from mtplxd.packs.resolver import list_packs
from mtplxd.packs.tiers import judge
from mtplxd.paths import Home
from mtplxd.platform.power import Battery
from support.daemon_process import short_folder
from support.fake_forge import FAKE, FakeEngine, journal, make_source, steer
from support.forge_driver import WORKER


def names_in(folder: Path) -> list[str]:
    """Every file below a folder."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


BUILDING = ["fetch", "convert", "extract", "calibrate"]
ALL = [*BUILDING, "measure", "verify"]


class Rig:
    """A home, a source in it, and a foreman."""

    def __init__(self, home: Home, *, head: bool = True, **how: Any) -> None:
        self.home, self.engine = home, FakeEngine()
        self.source = make_source(home.root / "source", head=head)
        steer(**how)
        self.foreman = Foreman(home, self.engine, worker=WORKER, parts=FAKE)
        self.said: list[Told] = []
        self.run: Run | None = None

    def begin(self, **asked: Any) -> Run:
        recipe = BuildRecipe(**{"source": str(self.source), "name": "mine", **asked})
        self.run = create_run(self.home, recipe, 1.8e9, "0a1b2c")
        return self.run

    def build(self, cancelled: Callable[[], bool] = lambda: False) -> Outcome:
        return self.foreman.execute(self.run or self.begin(), self.said.append, cancelled)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    with short_folder() as folder:
        monkeypatch.setenv("MTPLXD_HOME", str(folder))
        monkeypatch.setenv("FAKE_HUB", str(folder))
        home = Home(folder)
        home.create()
        yield home


def test_a_build_that_wins_is_a_verified_pack_and_leaves_only_its_records(home: Home) -> None:
    rig = Rig(home)
    outcome = rig.build()
    assert (outcome.verdict, outcome.pack, outcome.reasons) == ("depth_wins", "mine", ())
    assert outcome.message == "mine is made: `mtplx generate --model mine`"
    assert journal() == ALL
    pack = read_pack(home.packs / "mine")
    assert judge(pack)[0] == "verified"
    assert rig.run is not None
    assert sorted(path.name for path in rig.run.folder.iterdir()) == ["recipe.json", "state.json"]
    assert rig.run.state().won
    assert rig.engine.released == [rig.run.pack]
    assert {told.step for told in rig.said} == {*ALL, "inspect", "seal"}
    with pytest.raises(FailedPrecondition, match="has made its pack"):
        check_resumable(rig.run)


def test_what_a_pack_says_of_itself_is_whole_and_names_no_place_on_this_machine(home: Home) -> None:
    rig = Rig(home)
    rig.begin(quick=True, depths=(3,))
    rig.build()
    folder = home.packs / "mine"
    manifest = read_manifest(folder)
    assert manifest is not None
    fields, ours = manifest.fields, manifest.ours
    assert (fields["arch_id"], fields["public_model_id"], fields["recommended_mtp_depth"]) == (
        "mimo",
        "mine",
        3,
    )
    assert fields["speed_evidence"]["rows"][1]["ratio"] == 1.42
    assert fields["mtp_depth_max"] == 1
    provenance = fields["forge_provenance"]
    assert (provenance["source_repo"], provenance["run"]) == ("source", rig.run and rig.run.id)
    assert provenance["forge_recipe"]["depths"] == [3]
    assert len(provenance["inputs"]["config.json"]) == 64
    assert ours["head"]["layout"] == "namespace"
    assert ours["head"]["norm_convention"] == "as_stored"
    assert set(ours["fingerprint"]) == {"body", "head"}
    assert ours["verification"]["passed"] is True
    assert ours["training"] is None
    assert ours["text_only"] == {"tensors": 2, "bytes": 77}
    notes = "text only: 2 tensors are left out; depth 9 clipped to 8"
    assert (folder / "README.md").read_text() == f"# mine\n\nfrom None, depth_wins, LICENSE\n{notes}\n"
    assert (folder / "LICENSE").read_text() == "do what you like\n"
    for file in folder.glob("*.json"):
        assert str(home.root) not in file.read_text()
        assert str(Path.home()) not in file.read_text()


def test_the_papers_of_a_source_go_along_and_folders_of_the_same_name_do_not(home: Home) -> None:
    rig = Rig(home)
    (rig.source / "LICENSE").unlink()
    (rig.source / "LICENSES").mkdir()
    (rig.source / "LICENSES" / "MIT.txt").write_text("as in each file\n")
    for name in ("COPYING", "Notice.txt", "LICENCE.md", "license.bin"):
        (rig.source / name).write_text(f"{name}\n")
    assert rig.build().pack == "mine"
    papers = {name for name in names_in(home.packs / "mine") if name[:4].lower() in ("copy", "noti", "lice")}
    assert papers - {"license.bin"} == {"COPYING", "Notice.txt", "LICENCE.md"}
    assert (home.packs / "mine" / "README.md").read_text().splitlines()[
        2
    ] == "from None, depth_wins, LICENCE.md"


def test_a_trained_head_is_labelled_so_and_its_checkpoints_stay_out(home: Home) -> None:
    rig = Rig(home)
    rig.begin(train=True)
    outcome = rig.build()
    assert journal() == [*BUILDING, "train", "measure", "verify"]
    manifest = read_manifest(home.packs / "mine")
    assert manifest is not None
    assert manifest.training["origin"] == "trained"
    assert outcome.details["training"]["verdict"] == "trained"
    assert (home.packs / "mine" / "trained.json").is_file()
    assert not (home.packs / "mine" / "checkpoint").exists()


@pytest.mark.parametrize("step", ["convert", "train", "verify", "seal"])
def test_a_full_disk_in_any_step_is_told_as_one_and_the_build_goes_on_when_there_is_room(
    home: Home, step: str
) -> None:
    rig = Rig(home, full=step)
    run = rig.begin(train=step == "train")
    with pytest.raises(ResourceExhausted, match=r"the disk is full.*free some space"):
        rig.build()
    state = run.state()
    assert (state.status, state.error["code"], state.resumable) == (FAILED, "RESOURCE_EXHAUSTED", True)
    assert list_packs(home) == []
    done = journal()
    steer()
    assert rig.build().pack == "mine"
    again = [step] if step in ALL or step == "train" else []
    assert journal()[len(done) :][: len(again)] == again
    assert sorted(journal()) == sorted([*ALL, *(["train"] if step == "train" else []), *again])
    assert names_in(run.folder) == ["recipe.json", "state.json"]


def test_what_came_from_the_hub_goes_with_the_run(home: Home) -> None:
    rig = Rig(home)
    rig.source.rename(home.root / "org--model")
    rig.begin(source="org/model")
    rig.build()
    manifest = read_manifest(home.packs / "mine")
    assert manifest is not None
    provenance = manifest.fields["forge_provenance"]
    assert (provenance["source_repo"], provenance["source_sha"], provenance["source_licence"]) == (
        "org/model", "c0ffee", "mit",
    )  # fmt: skip
    assert rig.run is not None
    assert not rig.run.layer("fetch").exists()


@pytest.mark.parametrize("step", ["convert", "calibrate", "measure"])
def test_after_a_failure_only_what_is_left_runs(home: Home, step: str) -> None:
    rig = Rig(home, fail=step)
    with pytest.raises(Unavailable, match=f"{step} cannot go on"):
        rig.build()
    assert rig.run is not None
    state = rig.run.state()
    assert (state.status, state.error["code"]) == (FAILED, "UNAVAILABLE")
    assert list_packs(home) == []
    steer()
    assert rig.build().pack == "mine"
    at = ALL.index(step)
    assert journal() == [*ALL[: at + 1], *ALL[at:]]


@pytest.mark.parametrize(
    ("step", "verdict", "reason"),
    [
        ("convert", "quality_failed", "top-1 agreement 0.5 is below 0.85"),
        ("calibrate", "calibration_failed", "nothing was accepted"),
        ("train", "training_failed", "no better than before"),
        ("verify", "quality_failed", "greedy: 3 texts part"),
    ],
)
def test_a_step_that_loses_ends_the_build_with_its_verdict(
    home: Home, step: str, verdict: str, reason: str
) -> None:
    rig = Rig(home, lose=step)
    rig.begin(train=step == "train", body_bits=4)
    outcome = rig.build()
    assert (outcome.verdict, outcome.reasons, outcome.pack) == (verdict, (reason,), "")
    assert list_packs(home) == []
    assert journal()[-1] == step
    assert rig.run is not None
    assert names_in(rig.run.folder) == ["recipe.json", "state.json"]
    steer()
    with pytest.raises(FailedPrecondition, match=f"come to its verdict .*{verdict}"):
        check_resumable(rig.run)
    assert rig.build().verdict == verdict
    assert journal()[-1] == step


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        ({"dtype": "bf16"}, "depth_wins"),
        ({"body_bits": 16}, "depth_wins"),
        ({"dtype": "f16"}, "quality_failed"),
        ({"body_bits": 8}, "quality_failed"),
        ({"body_bits": 8, "quality_floor": 0.5}, "depth_wins"),
    ],
    ids=str,
)
def test_the_floor_is_asked_of_all_but_bf16_whose_cost_is_told(
    home: Home, asked: dict[str, Any], verdict: str
) -> None:
    rig = Rig(home, lose="convert")
    rig.begin(**asked)
    outcome = rig.build()
    assert outcome.verdict == verdict
    assert outcome.details["conversion"]["quality"]["top1"] == 0.5


def test_a_head_that_nothing_is_accepted_of_leaves_rows_and_no_weights(home: Home) -> None:
    rig = Rig(home, verdict="acceptance_collapsed")
    outcome = rig.build()
    assert [row["ratio"] for row in outcome.measured["rows"]] == [1.0, 1.42]
    assert rig.run is not None
    assert names_in(rig.run.folder) == ["recipe.json", "state.json"]
    assert outcome_of(rig.run.id, rig.run.recipe(), rig.run.state()).measured["rows"]


@pytest.mark.parametrize("verdict", ["no_depth_beats_plain", "throttled", "no_baseline"])
def test_a_build_that_does_not_win_keeps_its_rows_and_can_be_measured_again(home: Home, verdict: str) -> None:
    rig = Rig(home, verdict=verdict)
    outcome = rig.build()
    assert (outcome.verdict, outcome.pack) == (verdict, "")
    assert [row["ratio"] for row in outcome.measured["rows"]] == [1.0, 1.42]
    assert list_packs(home) == []
    steer()
    assert rig.build().pack == "mine"
    assert journal() == [*BUILDING, "measure", "measure", "verify"]


def from_the_hub(rig: Rig) -> Run:
    """A build of a repository, which has a head trained."""
    rig.source.rename(rig.home.root / "org--model")
    return rig.begin(source="org/model", train=True)


def test_a_build_to_be_measured_again_keeps_of_weights_what_that_needs(home: Home) -> None:
    rig = Rig(home, verdict="no_depth_beats_plain")
    run = from_the_hub(rig)
    rig.build()
    assert not [name for name in names_in(run.layer("fetch")) if name.endswith(".safetensors")]
    assert names_in(run.layer("train")) == ["training/trained.json"]
    assert [name for name in names_in(run.layer("convert")) if name.endswith(".safetensors")]
    steer()
    assert rig.build().pack == "mine"
    assert journal() == [*BUILDING, "train", "measure", "measure", "verify"]
    assert (home.packs / "mine" / "LICENSE").is_file()


def test_what_was_fetched_is_fetched_again_where_what_was_made_of_it_is_gone(home: Home) -> None:
    rig = Rig(home, verdict="no_depth_beats_plain")
    run = from_the_hub(rig)
    rig.build()
    next(run.layer("convert").glob("*.safetensors")).unlink()
    steer()
    assert rig.build().pack == "mine"
    assert journal()[len(BUILDING) + 2 :][:2] == ["fetch", "convert"]


def test_a_source_that_was_changed_in_its_place_is_read_again(home: Home) -> None:
    rig = Rig(home, verdict="no_depth_beats_plain")
    rig.build()
    (rig.source / "generation_config.json").write_text('{"changed": true}')
    steer()
    assert rig.build().pack == "mine"
    assert journal() == [*BUILDING, "measure", *BUILDING, "measure", "verify"]


@pytest.mark.parametrize("verdict", ["depth_wins", "acceptance_collapsed", "no_depth_beats_plain"])
def test_what_a_killed_daemon_did_not_clear_goes_when_the_next_one_starts(home: Home, verdict: str) -> None:
    rig = Rig(home, verdict=verdict)
    run = from_the_hub(rig)
    interrupted = create_run(home, rig.run and rig.run.recipe(), 1.9e9, "0a1b2d")  # type: ignore[arg-type]
    (interrupted.folder / "fetch").mkdir()
    (interrupted.folder / "fetch" / "model.safetensors").write_bytes(b"half")
    rig.foreman._conclude = lambda *_: None  # type: ignore[method-assign, assignment, return-value]
    rig.build()
    assert bytes_of(run.folder) > 10_000
    settle_runs(home)
    left = names_in(run.folder)
    if verdict == "no_depth_beats_plain":
        assert "convert/config.json" in left
        assert not [name for name in left if name.startswith("fetch/") and name.endswith(".safetensors")]
    else:
        assert left == ["recipe.json", "state.json"]
    assert (interrupted.folder / "fetch" / "model.safetensors").is_file()


@pytest.mark.parametrize(("train", "verdict"), [(False, "no_mtp_head"), (True, "depth_wins")])
def test_a_source_without_a_head_needs_one_trained(home: Home, train: bool, verdict: str) -> None:
    rig = Rig(home, head=False, lose="" if train else "nothing")
    rig.begin(train=train)
    if not train:
        outcome = rig.build()
        assert (outcome.verdict, journal()) == (verdict, ["fetch"])
        assert "--train makes one" in outcome.reasons
        return
    rig.engine.verify = lambda *_: {
        "passed": True,
        "failures": [],
        "record": None,
        "incomplete": "the test is too weak",
    }  # type: ignore[method-assign]
    outcome = rig.build()
    assert outcome.verdict == verdict
    assert outcome.message == "mine is made, but not verified, the test is too weak: `mtplx verify mine`"
    assert journal() == ["fetch", "convert", "train", "measure"]


def test_a_width_for_a_head_that_is_not_there_is_refused_before_the_body_is_converted(home: Home) -> None:
    rig = Rig(home, head=False)
    rig.begin(train=True, head_bits=8, allow_degraded_head=True)
    with pytest.raises(InvalidArgument, match="no head to pack"):
        rig.build()
    assert journal() == ["fetch"]


def test_a_source_that_cannot_be_read_is_unsupported(home: Home) -> None:
    rig = Rig(home)
    for file in rig.source.glob("*.safetensors*"):
        file.unlink()
    (rig.source / "pytorch_model.bin").write_bytes(b"pickled")
    outcome = rig.build()
    assert outcome.verdict == "unsupported_source"
    assert "pytorch_model.bin is no safetensors file" in outcome.reasons[0]


def test_a_conversion_takes_no_more_memory_than_the_daemon_was_given(home: Home) -> None:
    (home.root / "config.toml").write_text('memory_budget = "700M"\n')
    rig = Rig(home)
    plan = rig.build().details["conversion"]["plan"]
    assert plan["memory"] == parse_bytes("700M")


def test_a_worker_that_is_killed_ends_the_build_with_a_reason(home: Home) -> None:
    rig = Rig(home, kill="extract")
    with pytest.raises(ResourceExhausted, match="the build was killed"):
        rig.build()
    assert rig.run is not None
    assert rig.run.state().status == FAILED
    steer()
    assert rig.build().pack == "mine"
    assert journal() == ["fetch", "convert", "extract", "extract", "calibrate", "measure", "verify"]


@pytest.mark.parametrize("step", ["convert", "verify"])
def test_a_cancelled_build_ends_at_once_and_can_be_taken_up(home: Home, step: str) -> None:
    rig = Rig(home, hang=step)
    with pytest.raises(Cancelled):
        rig.build(lambda: any(told.message == "hangs" for told in rig.said))
    assert rig.run is not None
    assert rig.run.state().status == BEGUN
    assert rig.run.state().steps[step].status == "running"
    rig.said.clear()
    steer()
    assert rig.build().pack == "mine"


def test_a_name_that_is_taken_is_refused_before_and_after_the_work(home: Home) -> None:
    rig = Rig(home)
    (home.packs / "mine").mkdir()
    with pytest.raises(FailedPrecondition, match="a pack of this name is there"):
        rig.build()
    assert journal() == []
    (home.packs / "mine").rmdir()
    taken = home.packs / "mine"
    verify = rig.engine.verify

    def take_it_meanwhile(*args: Any) -> dict[str, Any]:
        taken.mkdir()
        return verify(*args)

    rig.engine.verify = take_it_meanwhile  # type: ignore[method-assign]
    with pytest.raises(FailedPrecondition, match="a pack of this name is there"):
        rig.build()
    taken.rmdir()
    assert rig.build().pack == "mine"
    assert journal() == ALL


def test_a_kill_between_the_rename_and_its_record_costs_nothing(home: Home) -> None:
    rig = Rig(home)
    run = rig.begin()
    kept = rig.foreman._conclude
    rig.foreman._conclude = lambda run, recipe: kept(run, recipe) if not run.state().won else None  # type: ignore
    rig.build()  # as if it had been killed before it cleared the run
    state = run.state()
    steps = {**state.steps, "seal": state.steps["seal"].__class__(inputs=state.steps["seal"].inputs, begun=1)}
    run.write(state.__class__(status=BEGUN, steps=steps, created=state.created))
    made = (home.packs / "mine" / "mtplx_runtime.json").stat().st_mtime_ns
    rig.foreman._conclude = kept  # type: ignore[method-assign]
    assert rig.build().pack == "mine"
    assert journal() == ALL
    assert (home.packs / "mine" / "mtplx_runtime.json").stat().st_mtime_ns == made
    assert not run.pack.exists()


def test_a_build_waits_for_what_an_earlier_daemon_left_at_work(home: Home) -> None:
    rig = Rig(home)
    rig.begin()
    looks = iter([False, False, True])
    with locked(home.run / "forge-mine.lock"), pytest.raises(Cancelled, match="another process"):
        rig.build(lambda: next(looks))
    assert journal() == []


def test_a_build_rests_while_the_battery_is_low(home: Home) -> None:
    rig = Rig(home)
    levels = iter([Battery(True, 20), Battery(True, 20)])
    rested: list[float] = []
    rig.foreman = Foreman(
        home,
        rig.engine,
        worker=WORKER,
        parts=FAKE,
        battery=lambda: next(levels, Battery(False, 20)),
        rest=rested.append,
    )
    assert rig.build().pack == "mine"
    assert len(rested) == 2
    assert "waits: the battery is at 20 %, plug in or build with --on-battery" in {
        t.message for t in rig.said
    }


def test_a_workers_memory_is_known_while_it_works(home: Home) -> None:
    rig = Rig(home)
    seen: list[int] = []
    rig.begin()
    rig.foreman.execute(rig.run, lambda _told: seen.append(rig.foreman.worker_bytes), lambda: False)  # type: ignore
    assert max(seen) > 10 << 20
    assert rig.foreman.worker_bytes == 0


def test_a_probe_and_a_publication_are_a_workers_too(home: Home) -> None:
    rig = Rig(home)
    assert (
        rig.foreman.ask("probe", "org/x", hear=rig.said.append, cancelled=lambda: False)["verdict"]
        == "forgeable"
    )
    with pytest.raises(Unavailable, match="the Hub cannot be reached"):
        rig.foreman.ask("probe", "org/missing", hear=rig.said.append, cancelled=lambda: False)
    rig.build()
    found = rig.foreman.ask(
        "publish", "mine", "ada/mine", "--dry-run", hear=rig.said.append, cancelled=lambda: False
    )
    assert found == {"repo": "ada/mine", "pack": "mine", "dry_run": True}
