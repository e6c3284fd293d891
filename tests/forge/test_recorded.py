"""Recorded conversations: read at once they say what they said token by token, and a run is made of them alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import Cancelled, InvalidArgument
from mtplxd.families.body import Body
from mtplxd.families.load import LoadedModel
from mtplxd.forge import adapter_run, rereading, worker
from mtplxd.forge.adapter_run import AdapterRun
from mtplxd.forge.course import read_curve
from mtplxd.forge.pacing import Pace
from mtplxd.forge.recorded import ROWS, Recording, find_origins, read_recording
from mtplxd.forge.rereading import find_largest, reread
from mtplxd.forge.rollout import Plan, Turns, roll
from mtplxd.forge.shards import ASKED, FORCED, GENERATED, Share, list_shards, read_shard
from mtplxd.forge.sizing import Recipe
from mtplxd.forge.stepping import TargetStepper
from mtplxd.forge.turns import find_turns

END = 9
TURNS = Turns(first=[1, 2], again=[END, 4, 2], close=[END, 3], encode=lambda text: [5] * len(text))


@pytest.fixture
def body(tiny: LoadedModel) -> Body:
    return Body(tiny.target.model, (2, 4))  # type: ignore[attr-defined]


@pytest.fixture
def conversations(tiny: LoadedModel) -> Recording:
    rng = np.random.default_rng(3)
    most = int(tiny.pack.text_config["vocab_size"])
    blocks = (rng.integers(0, most, (ROWS + 3, 40)), rng.integers(0, most, (5, 24)))
    return Recording(tuple(block.astype(np.int32) for block in blocks), "a digest")


@pytest.mark.parametrize("at_once", [512, 7])
def test_rows_read_at_once_say_what_they_said_token_by_token(
    tiny: LoadedModel, body: Body, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rereading, "AT_ONCE", at_once)
    turns = find_turns(tiny.tokenizer)
    plan = Plan(length=30, answer=(10, 20), question=8, run_free=0.0)
    said = roll(TargetStepper(body, 4), turns, lambda _: "Why?", plan, np.random.default_rng(1))
    found = reread(body, said.tokens.astype(np.int32), said.origin)
    np.testing.assert_array_equal(found.tokens, said.tokens)
    assert found.tokens.dtype == said.tokens.dtype
    assert found.top_ids.dtype == said.top_ids.dtype
    np.testing.assert_allclose(found.logsumexp, said.logsumexp, atol=1e-4)
    np.testing.assert_allclose(found.top_logprobs, said.top_logprobs, atol=4e-3)
    taps = np.asarray(said.taps, np.float32)
    np.testing.assert_allclose(np.asarray(found.taps, np.float32), taps, atol=4e-3 * np.abs(taps).max())
    clear = np.diff(said.top_logprobs.astype(np.float32), axis=-1)[..., 0] < -0.01
    np.testing.assert_array_equal(found.top_ids[..., 0][clear], said.top_ids[..., 0][clear])
    assert clear.mean() > 0.5


@pytest.mark.parametrize("size", [64, 1000, 49152])
def test_the_largest_are_found_whatever_group_they_are_in(size: int) -> None:
    values = np.random.default_rng(size).standard_normal((5, size)).astype(np.float32)
    values[0, :70] = 9.0  # more equal ones than are kept, most of them in one group
    ids, found = find_largest(values, min(size, 64))
    expected = -np.sort(-values, axis=1)[:, :64]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.take_along_axis(values, ids, axis=1), expected)
    assert all(len(set(row)) == len(row) for row in ids.tolist())


def origins(row: list[int]) -> list[int]:
    return find_origins(np.array([row], np.int32), TURNS)[0].tolist()


def test_an_answer_and_its_end_are_the_targets_the_template_is_nobodys() -> None:
    row = [1, 2, 5, 5, END, 3, 7, 7, END, 4, 2, 5, END, 3, 7]
    asked, said = [FORCED, FORCED, ASKED, ASKED, FORCED, FORCED], [GENERATED] * 3
    assert origins(row) == [*asked, *said, FORCED, FORCED, ASKED, FORCED, FORCED, GENERATED]


@pytest.mark.parametrize("cut", [5, 9, 10])
def test_a_row_that_is_cut_in_the_template_ends_there(cut: int) -> None:
    row = [1, 2, 5, 5, END, 3, 7, 7, END, 4, 2]
    assert origins(row[:cut]) == origins(row)[:cut]


def test_an_end_that_no_template_follows_is_an_end() -> None:
    assert origins([1, 2, 5, END, 3, 7, END, 8, 8])[5:] == [GENERATED, GENERATED, ASKED, ASKED]


def test_rows_without_turns_are_the_targets_throughout() -> None:
    plain = Turns(first=[], again=[], close=[], encode=lambda _: [])
    assert (find_origins(np.zeros((2, 9), np.int32), plain) == GENERATED).all()


def test_what_was_rolled_is_known_again(tiny: LoadedModel, body: Body) -> None:
    """Only who wrote an end that was forced on a long answer cannot be told from its tokens."""
    turns = find_turns(tiny.tokenizer)
    plan = Plan(length=60, answer=(12, 24), question=10, ask_first=1.0, ask_again=1.0, run_free=0.0)
    said = roll(TargetStepper(body, 6), turns, lambda _: "", plan, np.random.default_rng(2))
    found = find_origins(said.tokens.astype(np.int32), turns)
    other = said.tokens != turns.end
    np.testing.assert_array_equal(found[other], said.origin[other])


def test_a_run_of_a_recording_has_its_rows_and_no_others(
    tmp_path: Path,
    tiny: LoadedModel,
    conversations: Recording,
    make_recipe: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter_run, "HELD_OUT", ("What is a kiln?",))
    told: list[tuple[str, int, int]] = []

    def tell(stage: str, done: int, total: int, _: str) -> None:
        told.append((stage, done, total))

    recipe = make_recipe(steps=3, tokens=conversations.tokens)

    def run(folder: str, tell: Callable[..., None] = tell) -> Path:
        return AdapterRun(tmp_path / folder, tiny, recipe, Pace(tell), recording=conversations).execute()

    sidecar = run("run")
    data = tmp_path / "run" / "data"
    kept = [np.asarray(read_shard(data, index).tokens) for index in list_shards(data)]
    assert [shard.shape for shard in kept] == [(ROWS, 40), (3, 40), (5, 24)]
    np.testing.assert_array_equal(np.concatenate(kept[:2]), conversations.blocks[0])
    np.testing.assert_array_equal(kept[2], conversations.blocks[1])
    assert [found for found in told if found[0] == "data"][-1] == ("data", 3, 3)
    assert json.loads(sidecar.with_suffix(".json").read_text())["recorded"] == "a digest"

    def die(stage: str, done: int, *_: object) -> None:
        if (stage, done) == ("data", 2):
            raise Cancelled("cancelled", None, "")

    with pytest.raises(Cancelled):
        run("died", die)
    assert run("died").read_bytes() == sidecar.read_bytes()


def test_rows_that_processes_share_are_those_of_one(
    tmp_path: Path,
    tiny: LoadedModel,
    conversations: Recording,
    make_recipe: Callable[..., Recipe],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter_run, "HELD_OUT", ("What is a kiln?",))
    recipe = make_recipe(steps=2, tokens=conversations.tokens)

    def run(folder: str) -> AdapterRun:
        return AdapterRun(tmp_path / folder, tiny, recipe, Pace(lambda *_: None), recording=conversations)

    for part in (2, 1):
        run("shared").read(Share(part, 2))
    data = tmp_path / "shared" / "data"
    before = {path: path.stat().st_mtime_ns for path in data.iterdir()}
    assert len(before) == 3
    assert run("shared").execute().read_bytes() == run("alone").execute().read_bytes()
    assert {path: path.stat().st_mtime_ns for path in data.iterdir()} == before


@pytest.mark.parametrize(("count", "parts"), [(344, 2), (7, 3), (2, 3), (0, 2)])
def test_shares_are_all_of_it_once(count: int, parts: int) -> None:
    shared = [number for part in range(1, parts + 1) for number in Share(part, parts).of(count)]
    assert shared == list(range(count))


@pytest.mark.parametrize("share", ["0/2", "3/2", "1", "a/b", "1/0"])
def test_a_share_that_is_none_is_refused(share: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        worker.main(["train", "a-name", "--recorded", "a.npz", "--share", share])
    assert f"{share} is not a share such as 1/2" in capsys.readouterr().err


def test_only_recorded_rows_are_shared(
    tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert worker.main(["train", str(tiny_folder), "--home", str(tmp_path / "home"), "--share", "1/2"]) == 2
    assert "--recorded" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"rows": np.zeros((2, 20))},
        {"rows": np.zeros(20, np.int32)},
        {"rows": np.zeros((2, 4), np.int32)},
        {"rows": np.full((2, 20), 300, np.int32)},
        {"rows": np.full((2, 20), -1, np.int32)},
        {"rows": np.zeros((2, 20), np.int32), "other": np.zeros((0, 20), np.int32)},
    ],
)
def test_what_is_no_recording_is_refused_with_its_path(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, **arrays)
    with pytest.raises(InvalidArgument, match=r"rows\.npz"):
        read_recording(path, 300)


@pytest.mark.parametrize("content", [None, b"", b"not an archive", b"PK\x03\x04 cut short"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "rows.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"rows\.npz"):
        read_recording(path, 300)


def test_an_array_of_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, rows=np.array([{}, {}], dtype=object))
    with pytest.raises(InvalidArgument, match=r"rows\.npz"):
        read_recording(path, 300)


def test_the_command_says_what_is_wrong_with_a_file(
    tmp_path: Path, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ["--home", str(tmp_path / "home")]
    assert worker.main(["train", str(tiny_folder), *home, "--recorded", str(tmp_path / "none.npz")]) == 2
    said = capsys.readouterr().err
    assert "none.npz" in said
    assert "Traceback" not in said
    with pytest.raises(SystemExit):
        worker.main(["train", str(tiny_folder), *home, "--recorded", "a.npz", "--tokens", "5"])


def test_the_first_updates_are_those_of_the_whole_run_to_the_bit(
    tmp_path: Path, tiny: LoadedModel, make_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_run, "HELD_OUT", ("What is a kiln?",))

    def run(folder: str) -> AdapterRun:
        return AdapterRun(tmp_path / folder, tiny, make_recipe(), Pace(lambda *_: None), check_every=2)

    def digests(folder: str) -> list[tuple[int, str]]:
        return [(point["step"], point["digest"]) for point in read_curve(tmp_path / folder)]

    run("whole").execute()
    run("begun").begin(2)
    assert [step for step, _ in digests("whole")] == [2, 4]
    assert digests("begun") == digests("whole")[:1]
    assert digests("whole")[0][1] != digests("whole")[1][1]
    run("begun").begin(2)
    run("begun").execute()
    assert digests("begun") == digests("whole")
