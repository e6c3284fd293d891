"""What the benches of the small trained checkpoints share: their options, a row for each thing measured, how they end.

What a row is, and whether it passes, is each bench's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import RESULTS, Journal, report
from support import zoo

Rows = Iterator[tuple[str, dict[str, Any]]]
"""Keys and rows; a row says whether it `passed`."""


def measure_rows(bench: str, text: str, rows_of: Callable[[str, list[list[int]], Journal], Rows]) -> None:
    """Reads the command line, takes each checkpoint's rows by its name and prompts, and reports whether all pass."""
    args = _parser(text).parse_args()
    journal = Journal(bench, args)
    rows: dict[str, Any] = {}
    for name in args.names.split(","):
        prompts = [prompt["tokens"] for prompt in zoo.expected_of(name)["prompts"]][: args.prompts]
        for key, row in rows_of(name, prompts, journal):
            rows[key] = row
            print(key, row, flush=True)
    passed = all(row["passed"] for row in rows.values())
    report({"passed": passed}, journal.finish({"passed": passed, "rows": rows}), failed=not passed)


def _parser(text: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--prompts", type=int, default=20, help="how many of its 20 prompts")
    parser.add_argument("--names", default=",".join(zoo.NAMES), help="which checkpoints")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    return parser
