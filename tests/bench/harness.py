"""What the bench commands share: their options, the pack and the prompts, results that survive an interruption.

It measures nothing. The commands run as programs (`python tests/bench/peers.py`), which import it from beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from mtplxd.errors import MtplxError
from mtplxd.packs.pack import Pack
from mtplxd.packs.resolver import resolve
from mtplxd.paths import resolve_home
from mtplxd.tune.facts import read_place

RESULTS = Path(__file__).parent / "results"
sys.path.append(str(Path(__file__).parents[1]))  # tests, for what `support` offers

Sample = dict[str, Any]


def make_parser(text: str, **defaults: Any) -> argparse.ArgumentParser:
    """The options that every command has; `defaults` replace their defaults."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--model", default="smollm2-135m", help="pack name or folder")
    parser.add_argument("--suite", default="mixed", help="bench suite")
    parser.add_argument("--prompts", type=int, default=8, help="how many prompts of the suite")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    parser.set_defaults(**defaults)
    return parser


def find_pack(name: str) -> Pack:
    """The pack of a name under MTPLXD_HOME, or of a folder."""
    return resolve(name, resolve_home())


class Journal:
    """Samples of one command, written as they are made; the same command with the same options goes on from them."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self._name, self._out = name, args.out
        self._settings = {key: value for key, value in vars(args).items() if key not in ("out", "fresh")}
        self._partial = args.out / f"{name}.partial.jsonl"
        args.out.mkdir(parents=True, exist_ok=True)
        self._samples: dict[str, Sample] = {} if args.fresh else self._read()
        if not self._samples:
            self._partial.write_text(json.dumps(self._settings) + "\n", encoding="utf-8")

    def take(self, key: str, make: Callable[[], Sample]) -> Sample:
        """The sample of that key: the one measured before an interruption, else `make`'s."""
        if key not in self._samples:
            self._samples[key] = make()
            with self._partial.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, self._samples[key]]) + "\n")
        return self._samples[key]

    def has(self, key: str) -> bool:
        """Whether that key was measured already."""
        return key in self._samples

    def finish(self, summary: dict[str, Any]) -> Path:
        """Writes the result, with what it needs to be judged, and forgets the samples' journal."""
        result = {
            "bench": self._name,
            "date": date.today().isoformat(),
            "settings": self._settings,
            "place": asdict(read_place()),
            **summary,
            "samples": self._samples,
        }
        path = self._out / f"{self._name}.json"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        self._partial.unlink()
        return path

    def _read(self) -> dict[str, Sample]:
        try:
            lines = [json.loads(line) for line in self._partial.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError):
            return {}
        return dict(lines[1:]) if lines and lines[0] == self._settings else {}


def run(main: Callable[[], None]) -> None:
    """Runs a command; what a user can mend is one line on stderr."""
    try:
        main()
    except MtplxError as error:
        sys.exit(f"error: {error}")


def report(summary: dict[str, Any], path: Path, *, failed: bool = False) -> None:
    """Prints the summary and where the result is, and ends the process, whose engine thread may still hold work."""
    for name, value in summary.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
    print(f"written to {path}", flush=True)
    os._exit(int(failed))
