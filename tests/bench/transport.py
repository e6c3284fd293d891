"""Compares decoding over the socket with decoding inside the daemon, and weighs what runs beside the engine.

    python tests/bench/transport.py --prompts 4 --repeats 3 --depths 0,2

A daemon of its own serves both; the same prompts, seeds and depth are timed inside it and over its socket in turn.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from harness import Journal, Sample, find_pack, make_parser, report, run
from mtplx_client import Client
from mtplx_client.bench import Plan, measure_over_socket
from mtplx_client.events import Final, Text
from mtplx_client.generation import SamplerOptions
from mtplx_client.measurements import Measurement
from support.daemon_process import running_daemon, short_folder
from threads import Spent, difference, find_engine, read_threads

CPU_TOKENS = 128
"""Of the answer whose rounds are weighed."""
SAMPLER: SamplerOptions = {"temperature": 0.6, "top_p": 0.95}


class Pair:
    """Times one depth both ways on one daemon."""

    def __init__(self, client: Client, pid: int, model: Path, args: Any) -> None:
        self._client, self._pid, self._model, self._args = client, pid, str(model), args

    def measure(self, depth: int, turn: int) -> Sample:
        """Per-prompt ratios socket / in-process, and CPU seconds a round outside the engine over the socket."""
        ways = {"inprocess": self._inprocess, "socket": self._over_socket}
        found = {way: ways[way](depth) for way in sorted(ways, reverse=bool(turn % 2))}
        inside, over = _speeds(found["inprocess"]), _speeds(found["socket"])
        return {
            "depth": depth,
            "ratios": [over[prompt] / inside[prompt] for prompt in inside],
            "cpu_ms_a_round": 1e3 * self._weigh(depth),
        }

    def _weigh(self, depth: int) -> float:
        """CPU seconds a round of one answer between its first and its last token, of all threads but the engine's."""
        first: Spent = {}
        last: Spent = {}
        [prompt] = self._client.suite(self._args.suite, prompts=1).prompts
        for event in self._client.generate(
            prompt.text,
            model=self._model,
            depth=depth,
            max_tokens=CPU_TOKENS,
            ignore_eos=True,
            force=True,
            **SAMPLER,
        ):
            if isinstance(event, Text):
                last = read_threads(self._pid)
                first = first or last
            elif isinstance(event, Final):
                spent = difference(last, first)
                engine = find_engine(spent)
                outside = sum(seconds for thread, seconds in spent.items() if thread not in engine)
                return outside / (event.stats.rounds - 1)
        raise RuntimeError("an answer had no end")

    def _inprocess(self, depth: int) -> Measurement:
        return self._client.measure(
            self._model,
            depths=(depth,),
            prompts=self._args.prompts,
            max_tokens=self._args.max_tokens,
            suite=self._args.suite,
            **SAMPLER,
        )

    def _over_socket(self, depth: int) -> Measurement:
        plan = Plan(self._model, (depth,), self._args.max_tokens, self._args.prompts, self._args.suite)
        return measure_over_socket(self._client, plan, SAMPLER, lambda _: None)


def _speeds(found: Measurement) -> dict[int, float]:
    return {run.prompt: (run.tokens - 1) / (run.last_s - run.first_s) for run in found.runs}


def summarise(samples: list[Sample]) -> dict[str, Any]:
    ratios = {
        depth: median(ratio for sample in samples if sample["depth"] == depth for ratio in sample["ratios"])
        for depth in sorted({sample["depth"] for sample in samples})
    }
    return {
        "socket_over_inprocess": {str(depth): round(ratio, 4) for depth, ratio in ratios.items()},
        "cpu_ms_a_round_outside_engine": median(sample["cpu_ms_a_round"] for sample in samples),
    }


def main() -> None:
    parser = make_parser(__doc__ or "", prompts=4)
    parser.add_argument("--depths", default="0,2", help="depths to compare at")
    parser.add_argument("--repeats", type=int, default=3, help="how often each depth is compared")
    args = parser.parse_args()
    depths = [int(depth) for depth in args.depths.split(",")]
    pack = find_pack(args.model)
    journal = Journal("transport", args)
    samples = []
    with short_folder() as home, running_daemon(home) as daemon, Client(socket=daemon.socket) as client:
        pair = Pair(client, daemon.pid, pack.path, args)
        for turn in range(args.repeats):
            for depth in depths:

                def make(depth: int = depth, turn: int = turn) -> Sample:
                    return pair.measure(depth, turn)

                samples.append(journal.take(f"{turn}:{depth}", make))
    summary = summarise(samples)
    report(summary, journal.finish(summary))


if __name__ == "__main__":
    run(main)
