"""`python -m mtplxd.forge.worker`: one training run, or a daemon's job, as a process of its own.

Owns the command line and how progress is shown to people; the work is `adapter_run`'s and `jobs`'. A training's
progress is also in its folder, as `progress.json`, replaced atomically.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mtplxd.config import resolve_settings
from mtplxd.errors import InvalidArgument, MtplxError
from mtplxd.files import write_atomically
from mtplxd.forge import jobs
from mtplxd.forge.shards import Share
from mtplxd.packs.resolver import resolve
from mtplxd.paths import Home, resolve_home
from mtplxd.platform.blas import request_blas

PLAIN_EVERY_S = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains and prints the sidecar's path once there is one.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted (run again to go on).
    """
    options = _parser().parse_args(arguments)
    try:
        home = resolve_home(options.home)
        settings = resolve_settings(home)
        request_blas(settings.blas)
        if options.job is not None:
            return jobs.run_job(home, options)
        if (made := _train(home, options)) is not None:
            print(made)
    except MtplxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 1
    except OSError as error:
        print(f"error: cannot write the run ({error}): make room and run it again to go on", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _train(home: Home, options: argparse.Namespace) -> Path | None:
    from mtplxd.families.load import load_model
    from mtplxd.forge.adapter_run import AdapterRun
    from mtplxd.forge.pacing import Pace
    from mtplxd.forge.recorded import read_recording

    pack = resolve(options.name, home)
    recorded = None
    if options.recorded is not None:
        recorded = read_recording(options.recorded, int(pack.text_config["vocab_size"]))
    recipe = _recipe(options, recorded.tokens if recorded else options.tokens, pack.text_config)
    folder = options.run or home.runs / f"train-{pack.name}"
    folder.mkdir(parents=True, exist_ok=True)
    if options.share is not None and recorded is None:
        raise InvalidArgument(
            "only recorded rows are read in shares", options.share, "give --recorded as well"
        )
    told = "progress.json" if options.share is None else f"progress-{options.share.part}.json"
    with Shown(folder / told) as shown:
        shown.tell("load", 0, 1, pack.name)
        model = load_model(pack, plain=True)
        run = AdapterRun(
            folder, model, recipe, Pace(shown.tell), check_every=options.check_every, recording=recorded
        )
        if options.share is not None:
            run.read(options.share)
        elif options.until is not None:
            run.begin(options.until)
        else:
            return run.execute()
        return None


def _recipe(options: argparse.Namespace, tokens: int, config: dict[str, Any]) -> Any:
    from mtplxd.forge.rollout import Plan
    from mtplxd.forge.sizing import Recipe
    from mtplxd.forge.trainer import Schedule

    layers = int(config["num_hidden_layers"])
    return Recipe(
        tokens=tokens,
        schedule=Schedule(
            steps=options.steps,
            rows=options.batch,
            decay=options.decay,
            deep_every=options.deep_every,
            chain_share=options.chain_share,
            seed=options.seed,
        ),
        taps=tuple(sorted({max(1, layers // 3), max(1, 2 * layers // 3), layers})),
        mlp_width=options.mlp_width or int(config["intermediate_size"]),
        draft_vocab=options.draft_vocab,
        rows=options.rows,
        plan=Plan(length=options.length),
        seed=options.seed,
    )


class Shown:
    """Shows progress on standard error: a bar with the time left on a terminal, else a line now and then."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file, self._clock = file, clock
        self._spoke = -PLAIN_EVERY_S
        self._stage = ""
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Shown:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description:8}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, TextColumn("{task.fields[detail]}"), console=Console(stderr=True))
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tell(self, stage: str, done: int, total: int, detail: str) -> None:
        """One step of a stage is done."""
        entry = {"stage": stage, "done": done, "total": total, "message": detail}
        write_atomically(self._file, json.dumps(entry).encode())
        fresh, self._stage = stage != self._stage, stage
        if self._bar is not None:
            if fresh:
                self._task = self._bar.add_task(stage, total=total, detail=detail)
            self._bar.update(self._task, completed=done, total=total, detail=detail)
        elif fresh or done == total or self._clock() - self._spoke >= PLAIN_EVERY_S:
            self._spoke = self._clock()
            print(f"{stage} {done}/{total} {detail}", file=sys.stderr, flush=True)


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return number


def _share(text: str) -> Share:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text} is not a share such as 1/2")
    return Share(int(part), int(parts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mtplxd.forge.worker", description="Trains heads.")
    parser.set_defaults(job=None)
    commands = parser.add_subparsers(required=True)
    jobs.add_commands(commands)
    train = commands.add_parser(
        "train",
        help="train a head for a pack that has none; run it again to go on after an interruption",
        epilog="example: python -m mtplxd.forge.worker train smollm2-135m --tokens 1000000 --steps 2000",
    )
    train.add_argument("name", help="pack name or folder")
    train.add_argument("--home", help="the daemon's home (default: MTPLXD_HOME or ~/.mtplxd)")
    train.add_argument("--run", type=Path, help="folder of the run (default: HOME/runs/train-NAME)")
    data = train.add_mutually_exclusive_group()
    data.add_argument("--tokens", type=_whole, default=1_000_000, help="tokens of training data to generate")
    data.add_argument(
        "--recorded",
        type=Path,
        metavar="FILE",
        help="train on recorded token ids (.npz, a conversation a row)",
    )
    train.add_argument(
        "--share",
        type=_share,
        metavar="K/N",
        help="only read the K-th of N parts of the recorded rows; other processes may read the others meanwhile",
    )
    train.add_argument("--steps", type=_whole, default=2000, help="updates")
    train.add_argument("--batch", type=_whole, default=16, help="rows an update")
    train.add_argument("--until", type=_whole, help="stop after so many updates; without it, it goes on")
    train.add_argument("--check-every", type=_whole, default=200, help="save and measure so often")
    train.add_argument("--deep-every", type=_whole, default=2, help="train recursion every so many updates")
    train.add_argument(
        "--chain-share", type=_whole, default=1, help="then recursion behind one in so many places of a row"
    )
    train.add_argument("--decay", type=float, default=0.01, help="weight decay")
    train.add_argument("--rows", type=_whole, default=192, help="conversations generated at once")
    train.add_argument("--length", type=_whole, default=200, help="tokens a conversation")
    train.add_argument("--mlp-width", type=_whole, help="width of the head's MLP (default: the body's)")
    train.add_argument("--draft-vocab", type=_whole, default=6144, help="tokens the head can draft")
    train.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
