"""Fans of a Linux machine by the files of its hwmon drivers. Knows no driver by name.

`pwmN_enable` is 2 or more while the driver controls a fan, which value it was is what is given back. A fan that is not
automatic before we touch it is somebody else's (`fancontrol`, a user) and left alone. What we took is noted in a file
before the first write, so that another life of the helper gives back what this one took.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from .fans import Fan, FanError, Reading
from .smc_fans import Trouble

HWMON = "/sys/class/hwmon"
MANUAL, AUTOMATIC = 1, 2
FULL = 255
_PWM = re.compile(r"pwm(\d+)")


class HwmonFans:
    """Implements `fans.Backend`. `marker` is the file of what is taken: fan -> the value that `pwmN_enable` had."""

    name = "hwmon"

    def __init__(self, root: Path, marker: Path) -> None:
        self._root, self._marker = root, marker
        self._taken = self._recall()

    def read(self) -> Reading:
        """Every fan whose control can be set."""
        return Reading(tuple(self._fan(pwm) for pwm in self._pwms()))

    def hold(self, reading: Reading) -> None:
        """Manual, then full power."""
        trouble = Trouble()
        for pwm, fan in zip(self._pwms(), reading.fans):  # noqa: B905  # Python 3.9 knows no `strict`
            if fan.ours and not fan.held:
                trouble.run(self._hold, pwm)
        trouble.tell()

    def restore(self, reading: Reading | None) -> None:
        """What is noted goes back to what it was, and is crossed out once it reads so."""
        del reading
        trouble = Trouble()
        for name, before in list(self._taken.items()):
            trouble.run(self._give_back, name, before)
        trouble.tell()

    def _fan(self, pwm: Path) -> Fan:
        enable, power = _whole(pwm.with_name(pwm.name + "_enable")), _whole(pwm)
        number = pwm.name.removeprefix("pwm")
        top = float(_optional(pwm.with_name(f"fan{number}_max")))
        return Fan(
            rpm=float(_optional(pwm.with_name(f"fan{number}_input"))),
            target=top * power / FULL,
            min=float(_optional(pwm.with_name(f"fan{number}_min"))),
            max=top,
            automatic=enable >= AUTOMATIC,
            held=enable == MANUAL and power == FULL,
            ours=enable >= AUTOMATIC or self._name(pwm) in self._taken,
        )

    def _hold(self, pwm: Path) -> None:
        enable = pwm.with_name(pwm.name + "_enable")
        if (before := _whole(enable)) >= AUTOMATIC:
            self._note({**self._taken, self._name(pwm): before})
        _write(enable, MANUAL)
        _write(pwm, FULL)

    def _give_back(self, name: str, before: int) -> None:
        pwm = self._root / name.rpartition("=")[0]
        if self._name(pwm) == name:  # the driver is still there, under the same name
            enable = pwm.with_name(pwm.name + "_enable")
            _write(enable, before)
            if _whole(enable) != before:
                raise FanError(f"{enable} does not take {before}")
        self._note({fan: value for fan, value in self._taken.items() if fan != name})

    def _name(self, pwm: Path) -> str:
        """A fan by its place and its driver: another driver may have the place after a reload."""
        try:
            driver = (pwm.parent / "name").read_text().strip()
        except OSError:
            driver = ""
        return f"{pwm.parent.name}/{pwm.name}={driver}"

    def _pwms(self) -> list[Path]:
        try:
            found = [
                pwm
                for chip in sorted(self._root.iterdir())
                for pwm in sorted(chip.iterdir())
                if _PWM.fullmatch(pwm.name) and pwm.with_name(pwm.name + "_enable").exists()
            ]
        except FileNotFoundError:  # a machine without any, such as a virtual one
            return []
        except OSError as error:
            raise FanError(f"{self._root} cannot be read ({error.strerror})") from None
        return found

    def _note(self, taken: dict[str, int]) -> None:
        """On disk before it is true. Raises FanError."""
        temporary = self._marker.with_name(self._marker.name + ".tmp")
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(taken, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._marker)
        except OSError as error:
            raise FanError(f"{self._marker} cannot be written ({error.strerror})") from None
        self._taken = taken

    def _recall(self) -> dict[str, int]:
        try:
            found = json.loads(self._marker.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        pairs = found.items() if isinstance(found, dict) else ()
        return {name: value for name, value in pairs if isinstance(value, int) and value >= AUTOMATIC}


def _whole(path: Path) -> int:
    try:
        return int(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise FanError(f"{path} cannot be read ({error})") from None


def _optional(path: Path) -> int:
    """Of a file that not every driver has: 0 without it."""
    try:
        return int(path.read_text().strip())
    except (OSError, ValueError):
        return 0


def _write(path: Path, value: int) -> None:
    try:
        path.write_text(f"{value}\n")
    except OSError as error:
        raise FanError(f"{path} refuses {value} ({error.strerror})") from None
