"""Fans of Linux drivers: what is taken is given back as it was, also by another life; others' fans are left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mtplxd.thermal.fand.fans import FanError
from mtplxd.thermal.fand.hwmon import HwmonFans


def chip(root: Path, name: str, driver: str, **files: int) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(driver + "\n")
    for file, value in files.items():
        (folder / file).write_text(f"{value}\n")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "hwmon"
    chip(folder, "hwmon0", "nct6775", pwm1=80, pwm1_enable=5, fan1_input=900, fan1_min=300, fan1_max=2000,
         pwm2=120, pwm2_enable=1, fan2_input=1100)  # fmt: skip
    chip(folder, "hwmon1", "amdgpu", pwm1=40, pwm1_enable=2, fan1_input=700, fan1_max=3300)
    chip(folder, "hwmon2", "coretemp", temp1_input=45000)
    return folder


@pytest.fixture
def fans(root: Path, tmp_path: Path) -> HwmonFans:
    return HwmonFans(root, tmp_path / "marker.json")


def test_every_fan_is_read_and_one_in_other_hands_is_not_ours(fans: HwmonFans) -> None:
    reading = fans.read()
    assert [(fan.rpm, fan.automatic, fan.ours) for fan in reading.fans] == [
        (900.0, True, True),
        (1100.0, False, False),
        (700.0, True, True),
    ]
    assert reading.fans[0].target == pytest.approx(2000 * 80 / 255)
    assert reading.automatic


def test_fans_are_held_and_given_back_to_the_control_they_had(fans: HwmonFans, root: Path) -> None:
    fans.hold(fans.read())
    assert fans.read().held
    assert [(root / file).read_text() for file in ("hwmon0/pwm1_enable", "hwmon0/pwm1", "hwmon1/pwm1_enable")] == [
        "1\n", "255\n", "1\n",
    ]  # fmt: skip
    assert (root / "hwmon0/pwm2_enable").read_text() == "1\n"
    assert (root / "hwmon0/pwm2").read_text() == "120\n"
    fans.restore(fans.read())
    assert fans.read().automatic
    assert (root / "hwmon0/pwm1_enable").read_text() == "5\n"
    assert (root / "hwmon1/pwm1_enable").read_text() == "2\n"


def test_another_life_gives_back_what_this_one_took(fans: HwmonFans, root: Path, tmp_path: Path) -> None:
    fans.hold(fans.read())
    heir = HwmonFans(root, tmp_path / "marker.json")
    assert not heir.read().automatic
    heir.restore(None)
    assert heir.read().automatic
    assert (root / "hwmon0/pwm1_enable").read_text() == "5\n"
    assert json.loads((tmp_path / "marker.json").read_text()) == {}


def test_a_fan_that_is_taken_is_noted_before_it_is_written_to(
    fans: HwmonFans, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "marker.json").mkdir()
    with pytest.raises(FanError, match=r"marker\.json cannot be written"):
        fans.hold(fans.read())
    assert (root / "hwmon0/pwm1_enable").read_text() == "5\n"


def test_a_driver_that_does_not_take_its_control_back_is_tried_again(
    fans: HwmonFans, monkeypatch: pytest.MonkeyPatch
) -> None:
    fans.hold(fans.read())
    write = Path.write_text
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: 0)
    with pytest.raises(FanError, match="does not take 5"):
        fans.restore(None)
    monkeypatch.setattr(Path, "write_text", write)
    assert not fans.read().automatic
    fans.restore(None)
    assert fans.read().automatic


def test_a_driver_under_another_name_is_not_written_to(fans: HwmonFans, root: Path) -> None:
    fans.hold(fans.read())
    (root / "hwmon1/name").write_text("nouveau\n")
    (root / "hwmon1/pwm1_enable").write_text("1\n")
    fans.restore(None)
    assert (root / "hwmon1/pwm1_enable").read_text() == "1\n"
    assert (root / "hwmon0/pwm1_enable").read_text() == "5\n"


def test_a_machine_without_fans_has_none(tmp_path: Path) -> None:
    reading = HwmonFans(tmp_path / "nothing", tmp_path / "marker").read()
    assert reading.fans == ()
    assert reading.automatic
    assert not reading.held


@pytest.mark.parametrize("text", ["", "[]", "{", '{"hwmon0/pwm1=nct6775": "5"}', '{"../../etc/pwm1=": 0}'])
def test_a_marker_that_makes_no_sense_takes_nothing(root: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "marker.json").write_text(text)
    fans = HwmonFans(root, tmp_path / "marker.json")
    fans.restore(None)
    assert (root / "hwmon0/pwm1_enable").read_text() == "5\n"
