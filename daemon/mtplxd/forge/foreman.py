"""One build from its first step to its verdict: a worker for what needs no engine, the engine for what does.

It blocks and runs in a thread of the daemon. It holds the lock of the build's name, which a worker inherits: should the
daemon be killed, nobody takes the build up again before that worker has ended.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from mtplxd.errors import Cancelled, FailedPrecondition, MtplxError
from mtplxd.files import locked
from mtplxd.forge.leavings import settle_run
from mtplxd.forge.news import News, Told
from mtplxd.forge.outcome import Outcome, outcome_of
from mtplxd.forge.pacing import IsCancelled
from mtplxd.forge.parts import REAL, Parts
from mtplxd.forge.pipeline import run_steps
from mtplxd.forge.recipe import BuildRecipe
from mtplxd.forge.runs import Run
from mtplxd.forge.sealing import check_name_free, is_sealed
from mtplxd.forge.steps import JUDGING
from mtplxd.forge.waiting import reason_to_wait
from mtplxd.forge.work import EngineSteps, Work
from mtplxd.packs.landing import disk_errors
from mtplxd.packs.workers import Message, run_worker
from mtplxd.paths import Home, child_environment, resolve_hugging_face
from mtplxd.platform.power import Battery, read_battery
from mtplxd.platform.priority import background_threads

WORKER = "mtplxd.forge.worker"
REST_S = 1.0
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
Hear = Callable[[Told], None]


class Foreman:
    """Builds packs in a home. `worker` is the module that a worker runs."""

    def __init__(
        self,
        home: Home,
        engine: EngineSteps,
        *,
        worker: str = WORKER,
        parts: Parts = REAL,
        battery: Callable[[], Battery] = read_battery,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._home, self._engine, self._worker, self._parts = home, engine, worker, parts
        self._battery, self._rest = battery, rest
        self.worker_bytes = 0
        """What the worker at work took in memory at most; 0 without one."""

    def execute(self, run: Run, hear: Hear, cancelled: IsCancelled) -> Outcome:
        """Runs what of a build is not finished. Blocks.

        Raises what a step raises, which the run's state then names; Cancelled leaves it to be resumed.
        """
        recipe = run.recipe()
        target = self._home.packs / recipe.name
        with locked(self._home.run / f"forge-{recipe.name}.lock", cancelled) as lock:
            if run.state().resumable:
                if not is_sealed(run, target):
                    check_name_free(self._home, recipe.name)
                self._run_all(run, recipe, lock, hear, cancelled)
            return self._conclude(run, recipe)

    def ask(self, job: str, *arguments: str, hear: Hear, cancelled: IsCancelled) -> Any:
        """What a worker's probe or publication found, as JSON. Raises what it raises."""
        found: list[Any] = []

        def take(message: Message) -> None:
            if "found" in message:
                found.append(message["found"])
            else:
                hear(_told(message))

        lock = os.open(self._home.run, os.O_RDONLY)  # nothing is guarded: a job leaves nothing behind
        try:
            self._run_worker((job, *arguments), lock, take, cancelled, what=f"the {job}")
        finally:
            os.close(lock)
        return found[-1]

    def _run_all(self, run: Run, recipe: BuildRecipe, lock: int, hear: Hear, cancelled: IsCancelled) -> None:
        try:
            with disk_errors(self._home.runs):
                run.write(run.state().begin(time.time()))
                self._build(run, "building", lock, hear, cancelled)
                if not run.state().verdict:
                    try:
                        self._judge(run, recipe, hear, cancelled)
                    finally:
                        self._engine.release(run.pack)
                if not run.state().verdict:
                    self._build(run, "ending", lock, hear, cancelled)
                if not run.state().verdict:
                    run.write(run.state().win(time.time()))
        except Cancelled:
            raise
        except MtplxError as error:
            _note_failure(run, error)
            raise

    def _build(self, run: Run, phase: str, lock: int, hear: Hear, cancelled: IsCancelled) -> None:
        """Steps in a worker."""

        def take(message: Message) -> None:
            self.worker_bytes = int(message.get("memory", 0))
            hear(_told(message))

        self._run_worker(("build", str(run.folder), phase), lock, take, cancelled, what="the build")

    def _judge(self, run: Run, recipe: BuildRecipe, hear: Hear, cancelled: IsCancelled) -> None:
        """Steps on the engine."""
        pace = News(time.monotonic)
        for step in JUDGING:
            self._wait_for_power(step.name, recipe, hear, cancelled)

            def tell(stage: str, done: int, total: int, detail: str, name: str = step.name) -> None:
                if news := pace.take(name, stage, done, total, detail):
                    hear(news)

            work = Work(
                run, recipe, run.state(), self._home, resolve_hugging_face(), self._parts, tell, cancelled,
                engine=self._engine,
            )  # fmt: skip
            run_steps(work, [step], time.time)

    def _wait_for_power(self, step: str, recipe: BuildRecipe, hear: Hear, cancelled: IsCancelled) -> None:
        while reason := reason_to_wait(self._battery(), on_battery=recipe.on_battery):
            if cancelled():
                raise Cancelled("stopped before it was done", step)
            hear(Told(step, message=reason))
            self._rest(REST_S)

    def _run_worker(
        self,
        arguments: tuple[str, ...],
        lock: int,
        take: Callable[[Message], None],
        cancelled: IsCancelled,
        *,
        what: str,
    ) -> None:
        threads = str(background_threads(os.cpu_count() or 1))
        try:
            run_worker(
                self._worker,
                (*arguments, "--home", str(self._home.root)),
                what=what,
                lock=lock,
                on_message=take,
                cancelled=cancelled,
                env=child_environment(
                    HF_HUB_DISABLE_TELEMETRY="1",
                    HF_HUB_DISABLE_PROGRESS_BARS="1",
                    **dict.fromkeys(_THREADS, threads),
                ),
            )
        finally:
            self.worker_bytes = 0

    def _conclude(self, run: Run, recipe: BuildRecipe) -> Outcome:
        outcome = outcome_of(run.id, recipe, run.state())
        settle_run(run)
        return outcome


def _note_failure(run: Run, error: MtplxError) -> None:
    """A full disk may not take this either; then the run shows as interrupted."""
    with contextlib.suppress(OSError):
        run.write(run.state().fail(error, time.time()))
        settle_run(run)


def check_resumable(run: Run) -> None:
    """Raises FailedPrecondition for a run that has nothing left to do."""
    state = run.state()
    if state.won:
        raise FailedPrecondition("this run has made its pack", run.id, "build again under another --name")
    if not state.resumable:
        fix = "`mtplx forge build` it in another way"
        what = (
            "this run has come to its verdict"
            if state.verdict
            else "this run cannot go on as it was asked for"
        )
        why = state.verdict or state.error.get("message", "")
        raise FailedPrecondition(what, f"{run.id}, {why}", fix)


def _told(message: Message) -> Told:
    return Told(
        str(message.get("step", "")),
        str(message.get("stage", "")),
        int(message.get("done", 0)),
        int(message.get("total", 0)),
        float(message.get("eta_s", 0.0)),
        str(message.get("message", "")),
    )
