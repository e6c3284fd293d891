"""Where each file of the store on disk lies, and whose name a file has. Touches none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ENDING, UNFINISHED = ".blk", ".tmp"
_HEX = 64


@dataclass(frozen=True, slots=True)
class Places:
    """The names below the store's folder."""

    folder: Path

    @property
    def blocks(self) -> Path:
        """Holds a folder for each first byte of a name."""
        return self.folder / "blocks"

    @property
    def quarantine(self) -> Path:
        """Holds the files of blocks that were found damaged."""
        return self.folder / "quarantine"

    @property
    def index(self) -> Path:
        """The index of the blocks."""
        return self.folder / "index.db"

    @property
    def lock(self) -> Path:
        """Locked by the one who uses the store."""
        return self.folder / "blocks.lock"

    def shelf(self, name: bytes) -> Path:
        """The folder a block lies in."""
        return self.blocks / name[:1].hex()

    def block(self, name: bytes) -> Path:
        """The file of a block."""
        return self.shelf(name) / f"{name.hex()}{ENDING}"

    def unfinished(self, name: bytes) -> Path:
        """The same before it is whole."""
        return self.shelf(name) / f".{name.hex()}{UNFINISHED}"

    def quarantined(self, name: bytes) -> Path:
        """The same once it was found damaged."""
        return self.quarantine / f"{name.hex()}{ENDING}"


def name_of(file: str) -> bytes | None:
    """The block whose file has this name; None for another's."""
    text = file.removesuffix(ENDING)
    if len(text) != _HEX or text == file or text.strip("0123456789abcdef"):
        return None
    return bytes.fromhex(text)
