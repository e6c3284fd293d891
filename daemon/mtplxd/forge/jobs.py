"""What a worker does for a daemon: the steps of a build that need no engine, a probe, a publication.

It speaks in lines of JSON to whoever started it and ends with them; what a build came to is in its run's state.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mtplxd.config import resolve_settings
from mtplxd.errors import Cancelled, MtplxError
from mtplxd.forge.news import News, Told
from mtplxd.forge.parts import REAL, Parts
from mtplxd.forge.pipeline import run_steps
from mtplxd.forge.runs import Run
from mtplxd.forge.steps import PHASES
from mtplxd.forge.waiting import reason_to_wait
from mtplxd.forge.work import Work
from mtplxd.packs.inspection import Room
from mtplxd.packs.landing import disk_errors
from mtplxd.packs.machine import total_memory, widens_halves
from mtplxd.packs.resolver import resolve
from mtplxd.packs.workers import end_with_parent, say, say_error
from mtplxd.paths import Home, resolve_hugging_face
from mtplxd.platform.power import read_battery
from mtplxd.platform.priority import step_back_process

LOOK_S, REST_S = 15.0, 1.0
"""How often the battery is looked at, and a rest's shortest time."""


def add_commands(commands: Any) -> None:
    """The command lines of these jobs; a daemon writes them, nobody else."""
    build = commands.add_parser("build", help="run steps of a build (started by the daemon)")
    build.add_argument("run", type=Path)
    build.add_argument("phase", choices=sorted(PHASES))
    build.set_defaults(job=_build)
    probe = commands.add_parser("probe", help="what could be built of a model (started by the daemon)")
    probe.add_argument("name")
    probe.set_defaults(job=_probe)
    publish = commands.add_parser("publish", help="put a pack on the Hub (started by the daemon)")
    publish.add_argument("name")
    publish.add_argument("repo")
    publish.add_argument("--dry-run", action="store_true")
    publish.set_defaults(job=_publish)
    for command in (build, probe, publish):
        command.add_argument("--home", required=True)


def run_job(home: Home, options: argparse.Namespace, parts: Parts = REAL) -> int:
    """Does one; 0 done, 1 with the reason as the last line."""
    end_with_parent()
    step_back_process()
    try:
        with disk_errors(home.runs):
            options.job(home, options, parts)
    except MtplxError as error:
        say_error(error)
        return 1
    return 0


def _build(home: Home, options: argparse.Namespace, parts: Parts) -> None:
    run = Run(options.run)
    recipe = run.recipe()
    steps = PHASES[options.phase]
    voice = _Voice(News(time.monotonic), on_battery=recipe.on_battery)
    for step in steps:
        work = Work(
            run, recipe, run.state(), home, resolve_hugging_face(), parts, voice.of(step.name), _never,
            voice.reason_to_rest,
        )  # fmt: skip
        run_steps(work, [step], time.time)


def _probe(home: Home, options: argparse.Namespace, parts: Parts) -> None:
    room = Room(total_memory(), resolve_settings(home).memory_budget, widens_halves())
    found = parts.probe(options.name, home, resolve_hugging_face(), room)
    say({"found": parts.probe_document(found)})


def _publish(home: Home, options: argparse.Namespace, parts: Parts) -> None:
    pack = resolve(options.name, home)
    tell = _Voice(News(time.monotonic), on_battery=True).of("publish")
    found = parts.publish(
        pack, options.repo, resolve_hugging_face(), options.dry_run, tell, _never, home=home
    )
    say({"found": found.document()})


def _never() -> bool:
    """A daemon that wants a worker's end kills it."""
    return False


@dataclass
class _Voice:
    """Says how far a worker is, and what memory it took at most; rests meanwhile where the battery is low."""

    pace: News
    on_battery: bool
    _looked: float = -math.inf
    _reason: str = ""

    def of(self, step: str) -> Callable[[str, int, int, str], None]:
        """What a step tells to."""

        def tell(stage: str, done: int, total: int, detail: str) -> None:
            news = self.pace.take(step, stage, done, total, detail)
            if news:
                self._say(news)
                self._rest(news)

        return tell

    def reason_to_rest(self) -> str:
        """Why it should wait, empty where it need not; asked often, it looks at the battery now and then."""
        now = time.monotonic()
        if not self.on_battery and now - self._looked >= LOOK_S:
            self._looked, self._reason = now, reason_to_wait(read_battery(), on_battery=False)
        return self._reason

    def _rest(self, news: Told) -> None:
        while reason := self.reason_to_rest():
            self._say(replace(news, eta_s=0.0, message=reason))
            time.sleep(REST_S)

    def _say(self, news: Told) -> None:
        try:
            say({**asdict(news), "memory": _most_memory()})
        except BrokenPipeError:
            raise Cancelled("nobody listens any more", news.step) from None


def _most_memory() -> int:
    """Bytes that this process had in memory at most."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
