"""The file of what was learnt of packs: records by content and machine, whatever befalls the file."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from mtplxd.platform.machine import Machine
from mtplxd.tune.records import MOST, TuningFile, tuning_key

MACHINE = Machine(
    chip="M9", memory=1 << 34, cores=8, arch="arm64", os="macOS 26", macos="26.0", rosetta=False,
    power="normal", python="3.12.1",
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.json"


def test_a_record_is_found_by_the_next_one_who_opens_the_file(path: Path) -> None:
    TuningFile(path).write("depths", "k", {"version": 1, "seconds": {"": [[1, 0, 0.1]]}})
    assert TuningFile(path).read("depths", "k") == {"version": 1, "seconds": {"": [[1, 0, 0.1]]}}
    assert TuningFile(path).read("depths", "other") is None
    assert TuningFile(path).read("other", "k") is None


def test_a_record_takes_the_place_of_the_one_before(path: Path) -> None:
    file = TuningFile(path)
    file.write("depths", "k", {"at": 1})
    file.write("depths", "k", {"at": 2})
    assert file.read("depths", "k") == {"at": 2}
    assert list(json.loads(path.read_text())["depths"]) == ["k"]


def test_sections_and_what_others_wrote_stay(path: Path) -> None:
    path.write_text(json.dumps({"future": [1, 2], "choices": {"k": {"depth": 2}}}))
    TuningFile(path).write("depths", "k", {"at": 1})
    assert json.loads(path.read_text()) == {
        "future": [1, 2],
        "choices": {"k": {"depth": 2}},
        "depths": {"k": {"at": 1}},
    }


def test_the_oldest_records_go_and_one_written_again_is_young(path: Path) -> None:
    old = {str(at): {"at": at} for at in range(MOST)}
    path.write_text(json.dumps({"depths": old}))
    file = TuningFile(path)
    file.write("depths", "0", {"at": "again"})
    file.write("depths", "new", {"at": "new"})
    kept = json.loads(path.read_text())["depths"]
    assert len(kept) == MOST
    assert "1" not in kept
    assert (kept["0"], kept["new"]) == ({"at": "again"}, {"at": "new"})


@pytest.mark.parametrize(
    "damage", ["", "{", "[1]", "null", '{"depths": 7}', '{"depths": {"k": [1]}}', "\x00\xff"]
)
def test_a_damaged_file_is_as_if_there_were_none_and_mended(path: Path, damage: str) -> None:
    path.write_bytes(damage.encode("latin-1"))
    file = TuningFile(path)
    assert file.read("depths", "k") is None
    file.write("depths", "k", {"at": 1})
    assert file.read("depths", "k") == {"at": 1}


def test_what_cannot_be_written_is_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    with caplog.at_level(logging.WARNING):
        TuningFile(blocked / "tuning.json").write("depths", "k", {"at": 1})
    assert "cannot write" in caplog.text


def test_writers_of_one_file_lose_nothing(path: Path) -> None:
    file = TuningFile(path)
    with ThreadPoolExecutor(8) as many:
        list(many.map(lambda at: file.write("depths", str(at), {"at": at}), range(40)))
    assert json.loads(path.read_text())["depths"] == {str(at): {"at": at} for at in range(40)}


def test_a_key_tells_content_machine_and_backend_apart_and_nothing_of_one_start() -> None:
    key = tuning_key("body", "head", MACHINE, "cpu")
    assert key == tuning_key("body", "head", replace(MACHINE, memory=1, power="low", python="3.13"), "cpu")
    others = [
        tuning_key("other", "head", MACHINE, "cpu"),
        tuning_key("body", "other", MACHINE, "cpu"),
        tuning_key("body", "head", MACHINE, "gpu"),
        *(
            tuning_key("body", "head", replace(MACHINE, **change), "cpu")
            for change in ({"chip": "M1"}, {"arch": "x86_64"}, {"cores": 4})
        ),
        tuning_key("bodyhead", "", MACHINE, "cpu"),
    ]
    assert len({key, *others}) == 1 + len(others)


def test_a_record_that_is_removed_is_gone_and_the_others_stay(path: Path) -> None:
    file = TuningFile(path)
    assert file.write("depths", "k", {"at": 1})
    assert file.write("depths", "l", {"at": 2})
    assert file.remove("depths", "k")
    assert not file.remove("depths", "k")
    assert not file.remove("other", "k")
    assert json.loads(path.read_text()) == {"depths": {"l": {"at": 2}}}
