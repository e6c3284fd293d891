"""The home and Hugging Face's cache are where flag, environment and convention say, and private."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition, InvalidArgument
from mtplxd.paths import absolute, child_environment, resolve_home, resolve_hugging_face


def test_flag_beats_environment_beats_default(tmp_path: Path) -> None:
    env = {"MTPLXD_HOME": str(tmp_path / "env")}
    assert resolve_home(tmp_path / "flag", env).root == tmp_path / "flag"
    assert resolve_home(None, env).root == tmp_path / "env"
    assert resolve_home(None, {"MTPLXD_HOME": ""}).root == Path.home() / ".mtplxd"


def test_relative_and_tilde_homes_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert resolve_home("x/../h", {}).root == tmp_path / "h"
    assert resolve_home("~/h", {}).root == tmp_path / "me" / "h"


def test_everything_is_inside_the_home(tmp_path: Path) -> None:
    home = resolve_home(tmp_path, {})
    found = [
        home.config_file,
        home.packs,
        home.store,
        home.tuning_file,
        home.runs,
        home.logs,
        home.run,
        home.socket,
    ]
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "config.toml", "packs", "store", "tuning.json", "runs", "logs", "run", "run/mtplxd.sock",
    ]  # fmt: skip


def test_folders_are_made_for_the_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    home = resolve_home(tmp_path / "a" / "home", {})
    home.create()
    home.create()
    for folder in (home.root, home.packs, home.store, home.runs, home.logs, home.run):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidArgument, match="--home"):
        resolve_home(tmp_path / "file", {})


def test_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "packs").write_text("x")
    with pytest.raises(FailedPrecondition, match="packs"):
        resolve_home(tmp_path, {}).create()


def test_hugging_face_variables_are_honoured_in_their_usual_order() -> None:
    assert resolve_hugging_face({"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}).cache == Path("/c")
    assert resolve_hugging_face({"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}).cache == Path("/h/hub")
    assert resolve_hugging_face({"XDG_CACHE_HOME": "/x"}).cache == Path("/x/huggingface/hub")
    assert resolve_hugging_face({}).cache == Path.home() / ".cache/huggingface/hub"


@pytest.mark.parametrize(
    ("text", "offline"), [("1", True), ("TRUE", True), ("0", False), ("", False), ("no", False)]
)
def test_offline_mode(text: str, offline: bool) -> None:
    found = resolve_hugging_face({"HF_HUB_OFFLINE": text, "HF_TOKEN": "t", "HF_ENDPOINT": "https://m"})
    assert (found.offline, found.token, found.endpoint) == (offline, "t", "https://m")


def test_path_of_an_unknown_user_stays_as_it_is() -> None:
    assert absolute("~no-such-user-here/x").name == "x"


def test_child_environment_changes_only_what_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_VARIABLE", "kept")
    env = child_environment(TMPDIR="/t")
    assert (env["SOME_VARIABLE"], env["TMPDIR"]) == ("kept", "/t")
