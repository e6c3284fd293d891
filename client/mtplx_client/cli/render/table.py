"""Tables for people: aligned columns, or a block a row where the terminal is too narrow for them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2
CYAN, PLAIN = "\x1b[36m", "\x1b[0m"


@dataclass(frozen=True)
class Column:
    """A column's title; numbers stand at the right."""

    title: str
    right: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], color: bool) -> str:
    """The table as text. A pipe or file gets full columns; a terminal never gets a line wider than itself."""
    widths = [max(map(len, cells)) for cells in zip([c.title for c in columns], *rows, strict=True)]
    if sys.stdout.isatty() and sum(widths) + GAP * (len(widths) - 1) > shutil.get_terminal_size().columns:
        return _blocks(columns, rows)
    head = _line([column.title for column in columns], columns, widths)
    lines = [f"{CYAN}{head}{PLAIN}" if color else head]
    return "\n".join([*lines, *(_line(row, columns, widths) for row in rows)])


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column.right else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return (" " * GAP).join(padded).rstrip()


def _blocks(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    blocks = ("\n".join(f"{c.title}: {cell}" for c, cell in zip(columns, row, strict=True)) for row in rows)
    return "\n\n".join(blocks)
