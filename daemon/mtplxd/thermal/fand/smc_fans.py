"""Fans of a Mac by their keys in the system management controller, for every generation of Apple silicon.

M1 takes a mode at once. M3 and M4 refuse it, or swallow it, until `Ftst` has kept the system's thermal daemon off for
some seconds; M5 has no `Ftst` and spells the mode's key in small letters. Modes 0 and 3 are automatic, 1 is manual.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from .fans import Fan, FanError, Reading
from .smc import Smc

AUTOMATIC, MANUAL, SYSTEM = 0, 1, 3
UNLOCK = "Ftst"
MODE_KEYS = ("F%dMd", "F%dmd")
MOST_FANS = 10
_NEAR_RPM = 1.0


class SmcFans:
    """Implements `fans.Backend`."""

    name = "smc"

    def __init__(self, smc: Smc) -> None:
        self._smc = smc
        self._mode_keys: dict[int, str] = {}

    def read(self) -> Reading:
        """All fans, each by five keys."""
        return Reading(tuple(self._fan(number) for number in range(self._count())), self._unlocked())

    def hold(self, reading: Reading) -> None:
        """Manual, then the fan's own maximum. The unlock is asked for where a mode was not taken."""
        trouble = Trouble()
        for number, fan in enumerate(reading.fans):
            if self._mode(number) != MANUAL:
                trouble.run(self._set_mode, number, MANUAL)
            if self._mode(number) == MANUAL and abs(fan.target - fan.max) >= _NEAR_RPM:
                trouble.run(self._set_target, number, fan.max)
        locked = any(self._mode(number) != MANUAL for number in range(len(reading.fans)))
        if locked and self._smc.has(UNLOCK) and not self._unlocked():
            trouble.run(self._smc.write, UNLOCK, b"\x01")
        trouble.tell()

    def restore(self, reading: Reading | None) -> None:
        """Modes first: a machine whose thermal daemon comes back finds no fan in somebody's hand. Targets stay, since a
        lower one on a fan that is still manual would stop it.
        """
        trouble = Trouble()
        for number in range(self._count_for_restore(reading)):
            if reading is None or not reading.fans[number].automatic:
                trouble.run(self._set_mode, number, AUTOMATIC)
        trouble.run(self._lock, reading)
        trouble.tell()

    def _fan(self, number: int) -> Fan:
        mode, target, top = self._mode(number), self._speed("Tg", number), self._speed("Mx", number)
        return Fan(
            rpm=self._speed("Ac", number),
            target=target,
            min=self._speed("Mn", number),
            max=top,
            automatic=mode in (AUTOMATIC, SYSTEM),
            held=mode == MANUAL and abs(target - top) < _NEAR_RPM,
        )

    def _count(self) -> int:
        return min(self._smc.read("FNum")[0], MOST_FANS)

    def _count_for_restore(self, reading: Reading | None) -> int:
        """Where not even their number can be read, those that were seen, else two."""
        if reading is not None:
            return len(reading.fans)
        try:
            return self._count()
        except FanError:
            return len(self._mode_keys) or 2

    def _speed(self, name: str, number: int) -> float:
        value: float = struct.unpack("<f", self._smc.read(f"F{number}{name}"))[0]
        return value

    def _set_target(self, number: int, rpm: float) -> None:
        self._smc.write(f"F{number}Tg", struct.pack("<f", rpm))

    def _mode(self, number: int) -> int:
        return self._smc.read(self._mode_key(number))[0]

    def _set_mode(self, number: int, mode: int) -> None:
        self._smc.write(self._mode_key(number), bytes([mode]))

    def _mode_key(self, number: int) -> str:
        if number not in self._mode_keys:
            keys = [key % number for key in MODE_KEYS]
            found = next((key for key in keys if self._smc.has(key)), None)
            if found is None:
                raise FanError(f"fan {number} has no mode key ({' or '.join(keys)})")
            self._mode_keys[number] = found
        return self._mode_keys[number]

    def _unlocked(self) -> bool:
        return self._smc.has(UNLOCK) and self._smc.read(UNLOCK)[0] != 0

    def _lock(self, reading: Reading | None) -> None:
        if self._smc.has(UNLOCK) and (reading is None or reading.unlocked):
            self._smc.write(UNLOCK, b"\x00")


class Trouble:
    """Goes on after a failure: the other fans are tried too, and all is told at the end."""

    def __init__(self) -> None:
        self._said: list[str] = []

    def run(self, work: Callable[..., object], *values: object) -> None:
        try:
            work(*values)
        except FanError as error:
            self._said.append(str(error))

    def tell(self) -> None:
        """Raises FanError with what failed, if anything did."""
        if self._said:
            raise FanError("; ".join(self._said))
