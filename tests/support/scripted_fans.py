"""Fans that do what a test says: refuse, lie, fail to be read."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtplxd.thermal.fand.fans import Fan, FanError, Reading


@dataclass
class ScriptedFans:
    """Implements `fans.Backend`. `lies` and `refusals` are counted down by writes, `unreadable` by reads."""

    modes: list[str] = field(default_factory=lambda: ["auto", "auto"])
    unlocked: bool = False
    lies: int = 0
    refusals: int = 0
    unreadable: int = 0
    theirs: bool = False
    name: str = "scripted"
    holds: int = 0
    restores: int = 0
    blind: int = 0

    def read(self) -> Reading:
        if self.unreadable:
            self.unreadable -= 1
            raise FanError("no answer")
        return Reading(
            tuple(
                Fan(0, 0, 0, 0, automatic=mode == "auto", held=mode == "held", ours=not self.theirs)
                for mode in self.modes
            ),
            self.unlocked,
        )

    def hold(self, reading: Reading) -> None:
        del reading
        self.holds += 1
        self._write("held")

    def restore(self, reading: Reading | None) -> None:
        self.restores += 1
        self.blind += reading is None
        self._write("auto")

    def _write(self, mode: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise FanError("refused")
        if self.lies:
            self.lies -= 1
            return
        self.modes = [mode] * len(self.modes)
        self.unlocked = False
