"""Compares how fast one client alone is served by this checkout and by another one, in turn on the same machine.

    python tests/bench/alone.py --against /tmp/before --prompts 6 --depths 0,1,2

Each side is a process of its own with its own client and daemon (`alone_side.py`), so that neither has to speak the
other's protocol. Every prompt is timed A B B A.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any

from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplxd.tune.prompts import load_suite
from support.daemon_process import END_LIMIT_S, clean_environment

HERE = Path(__file__).resolve().parents[2]
LEAST = 0.97
"""Speed of this checkout over the other's, at every depth."""
SIDES = ("before", "now")
WARM_TOKENS = 16
SAMPLER = {"temperature": 0.6, "top_p": 0.95, "acceptance": "block"}


class Side:
    """One checkout at work, asked one line at a time."""

    def __init__(self, checkout: Path, model: Path) -> None:
        rooms = [str(checkout / room) for room in ("daemon", "client", "proto")]
        environment = clean_environment(Path.home(), PYTHONPATH=":".join(rooms))
        command = [sys.executable, str(HERE / "tests" / "bench" / "alone_side.py"), str(model)]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.code = Path(self._hear()["code"])
        if checkout.resolve() not in self.code.resolve().parents:
            raise SystemExit(f"error: other code was loaded ({self.code}): give a checkout's folder")

    def time(self, **asked: Any) -> Sample:
        """One answer's speed, as `alone_side` tells it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._hear()

    def close(self) -> None:
        """Ends its daemon, then the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(END_LIMIT_S)

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("error: one side has ended: see its lines above")
        heard: dict[str, Any] = json.loads(line)
        return heard


@contextmanager
def both(against: Path, model: Path) -> Iterator[dict[str, Side]]:
    """Both sides, with the model in memory."""
    sides: dict[str, Side] = {}
    try:
        for name, checkout in zip(SIDES, (against, HERE), strict=True):
            sides[name] = Side(checkout, model)
        yield sides
    finally:
        for side in sides.values():
            side.close()


def compare(sides: dict[str, Side], prompt: str, depth: int, turn: int, args: Any) -> Sample:
    """One prompt at one depth, four times: mean speeds, and waits for the first token."""
    first, second = sorted(SIDES, reverse=bool(turn % 2))
    heard: dict[str, list[Sample]] = {name: [] for name in SIDES}
    for name in (first, second, second, first):
        settings = {"max_tokens": args.max_tokens, "depth": depth, "seed": turn, **SAMPLER}
        heard[name].append(sides[name].time(prompt=prompt, options=settings))
    sample: Sample = {"depth": depth}
    for name, found in heard.items():
        sample[f"{name}_tok_s"] = fmean(one["tok_s"] for one in found)
        sample[f"{name}_ttft_s"] = fmean(one["ttft_s"] for one in found)
    sample["same_text"] = heard["before"][0]["tokens"] == heard["now"][0]["tokens"]
    return sample


def summarise(samples: list[Sample]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for depth in sorted({sample["depth"] for sample in samples}):
        here = [sample for sample in samples if sample["depth"] == depth]
        summary[f"ratio_depth_{depth}"] = median(one["now_tok_s"] / one["before_tok_s"] for one in here)
        summary[f"tok_s_depth_{depth}"] = median(one["now_tok_s"] for one in here)
        summary[f"ttft_ratio_depth_{depth}"] = median(
            one["now_ttft_s"] / one["before_ttft_s"] for one in here
        )
        summary[f"same_texts_depth_{depth}"] = f"{sum(one['same_text'] for one in here)} of {len(here)}"
    ratios = [value for name, value in summary.items() if name.startswith("ratio_")]
    return {**summary, "worst_ratio": min(ratios), "passed": min(ratios) >= LEAST}


def main() -> None:
    parser = make_parser(__doc__ or "", prompts=6, max_tokens=96)
    parser.add_argument("--against", type=Path, required=True, help="folder of the other checkout")
    parser.add_argument("--depths", default="0,1,2", help="depths to compare at")
    args = parser.parse_args()
    args.against = str(args.against.resolve())
    pack = find_pack(args.model)
    journal = Journal("alone", args)
    prompts = [prompt.text for prompt in load_suite(args.suite, args.prompts).prompts]
    depths = [int(depth) for depth in args.depths.split(",")]
    samples = []
    with both(Path(args.against), Path(pack.path).resolve()) as sides:
        for depth in depths:
            for side in sides.values():
                side.time(prompt=prompts[0], options={"max_tokens": WARM_TOKENS, "depth": depth})
        for turn, prompt in enumerate(prompts):
            for depth in depths:

                def make(prompt: str = prompt, depth: int = depth, turn: int = turn) -> Sample:
                    return compare(sides, prompt, depth, turn, args)

                samples.append(journal.take(f"{turn} {depth}", make))
    summary = summarise(samples)
    report(summary, journal.finish(summary), failed=not summary["passed"])


if __name__ == "__main__":
    run(main)
