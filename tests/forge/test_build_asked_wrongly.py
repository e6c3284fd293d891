"""A build whose recipe does not fit its source fails by the field's name, and is not offered to be taken up again."""

from __future__ import annotations

from pathlib import Path

import pytest
from mtplxd.errors import FailedPrecondition, InvalidArgument
from mtplxd.forge.foreman import Foreman, check_resumable
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.runs import create_run
from mtplxd.paths import Home
from support.fake_forge import FAKE, FakeEngine, make_source, steer
from support.forge_driver import WORKER


def test_what_was_asked_for_wrongly_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLXD_HOME", str(tmp_path))
    home = Home(tmp_path)
    home.create()
    steer()
    source = str(make_source(tmp_path / "source", head=False))
    recipe = BuildRecipe(source=source, name="mine", train=True, head_bits=8, allow_degraded_head=True)
    run = create_run(home, recipe, 1.8e9, "0a1b2c")
    foreman = Foreman(home, FakeEngine(), worker=WORKER, parts=FAKE)
    with pytest.raises(InvalidArgument) as caught:
        foreman.execute(run, lambda _told: None, lambda: False)
    assert caught.value.field == "head_bits"
    assert not run.state().resumable
    assert sorted(path.name for path in run.folder.iterdir()) == ["recipe.json", "state.json"]
    with pytest.raises(FailedPrecondition, match=r"cannot go on as it was asked for .*no head to pack"):
        check_resumable(run)
