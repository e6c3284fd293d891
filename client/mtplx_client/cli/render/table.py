"""Tables for people: aligned columns, or a block a row where the terminal is too narrow for them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2


@dataclass(frozen=True)
class Column:
    """A column's title; numbers stand at the right."""

    title: str
    right: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], color: bool) -> str:
    """The table as text. A pipe or file gets full columns; a terminal never gets a line wider than itself."""
    natural = sum(_width(columns, rows, at) for at in range(len(columns))) + GAP * (len(columns) - 1)
    if sys.stdout.isatty() and natural > shutil.get_terminal_size().columns:
        return _blocks(columns, rows)
    return _columns(columns, rows, natural, color)


def _columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, color: bool) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="cyan")
    for column in columns:
        grid.add_column(Text(column.title), justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console = Console(width=width + GAP, force_terminal=color, no_color=not color, highlight=False)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _blocks(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    lines = []
    for row in rows:
        lines += [f"{column.title}: {cell}" for column, cell in zip(columns, row, strict=True)] + [""]
    return "\n".join(lines[:-1])


def _width(columns: Sequence[Column], rows: Sequence[Sequence[str]], at: int) -> int:
    return max(len(columns[at].title), *(len(row[at]) for row in rows), 0)
