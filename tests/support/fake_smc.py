"""A controller of fans that does not exist: its stand-in for IOKit, compiled once, and the file that is its state.

The layout is that of tests/thermal/native/iokit.c. Tests read the file without the code under test.
"""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "thermal" / "native"
MAGIC = 0x464E5344
FANS = 4
M1, M3, M4, M5 = 1, 3, 4, 5
_HEAD = struct.Struct("<14I2Q")
_FAN = struct.Struct("<4f2I")
_FIELDS = (
    "magic", "generation", "fans", "ftst", "unlock_ms", "handback_ms", "refuse_percent", "lie_percent",
    "fail_percent", "seed", "fail_reads", "root_only", "writes", "manual_writes", "unlocked_ns", "relocked_ns",
)  # fmt: skip


def compiled(name: str) -> Path:
    """The shared library of a C file in `native`, made anew when its text changes."""
    source = SOURCES / f"{name}.c"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    cache = Path(tempfile.gettempdir()) / f"mtplxd-native-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    library = cache / f"{name}-{digest}.so"
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}.tmp")
        command = [
            "cc",
            "-std=gnu11",
            "-O1",
            "-Wall",
            "-Werror",
            "-shared",
            "-fPIC",
            "-o",
            str(made),
            str(source),
        ]
        subprocess.run(command, check=True)
        made.replace(library)
    return library


@dataclass(frozen=True)
class FanState:
    actual: float
    target: float
    min: float
    max: float
    mode: int


class FakeSmc:
    """The state in a file; attributes of its head are read and written by name."""

    def __init__(self, path: Path, generation: int = M1, fans: int = 2, **settings: int) -> None:
        self.path, self.library = path, compiled("iokit")
        path.write_bytes(bytes(_HEAD.size + FANS * _FAN.size))
        self.set(magic=MAGIC, generation=generation, fans=fans, unlock_ms=300, handback_ms=300, seed=1)
        self.set(**settings)
        for number in range(fans):
            self.set_fan(number, mode=0)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to see this controller."""
        return {"FAKE_SMC": str(self.path)}

    def set(self, **changes: int) -> None:
        """Changes fields of the head, each alone: other processes write theirs meanwhile."""
        with open(self.path, "r+b", buffering=0) as file:
            for name, value in changes.items():
                at = _FIELDS.index(name)
                long = at >= 14
                file.seek(at * 4 if not long else 56 + (at - 14) * 8)
                file.write(struct.pack("<Q" if long else "<I", value))

    def get(self, name: str) -> int:
        """A field of the head."""
        values = _HEAD.unpack_from(self.path.read_bytes())
        return int(values[_FIELDS.index(name)])

    def set_fan(self, number: int, mode: int, target: float = 1200.0) -> None:
        """A fan as somebody left it."""
        packed = _FAN.pack(target, target, 1200.0, 5800.0 + number, mode, 0)
        with open(self.path, "r+b", buffering=0) as file:
            file.seek(_HEAD.size + number * _FAN.size)
            file.write(packed)

    def fan(self, number: int) -> FanState:
        *speeds, mode, _ = _FAN.unpack_from(self.path.read_bytes(), _HEAD.size + number * _FAN.size)
        return FanState(*speeds, mode=mode)

    @property
    def automatic(self) -> bool:
        """Every fan is the system's, and so is the control over them."""
        return not self.get("ftst") and all(
            self.fan(number).mode in (0, 3) for number in range(self.get("fans"))
        )

    @property
    def held(self) -> bool:
        """Every fan is in somebody's hand and at its maximum."""
        fans = [self.fan(number) for number in range(self.get("fans"))]
        return all(fan.mode == 1 and fan.target == fan.max for fan in fans)
