"""The Tuning service: measuring and verifying inside the daemon, and the sums for what a client timed itself.

It keeps the model in memory and takes the engine; order, clock and sums are `tune`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from mtplx_proto.v1 import tuning_pb2, tuning_pb2_grpc

from mtplxd.engine.engine import Engine
from mtplxd.engine.request import SamplerSettings
from mtplxd.errors import InvalidArgument, MtplxError
from mtplxd.residency.catalog import sampler_defaults
from mtplxd.residency.depth_memory import DepthMemory
from mtplxd.residency.entry import Lease
from mtplxd.residency.manager import Residency
from mtplxd.rpc import measurements, messages, tunes, verifying
from mtplxd.rpc.holding import Say, hold_engine
from mtplxd.rpc.leasing import acquire, choose_model, until_handed_on
from mtplxd.rpc.status import Facts
from mtplxd.rpc.validate_sampler import (
    AskedSampler,
    read_sampler,
    refuse_draft,
    settle_sampler,
    without_seed,
)
from mtplxd.thermal.warden import Warden
from mtplxd.tune.facts import Place, measure_memory, read_place
from mtplxd.tune.measure import Measurement, Poll, Progress, measure
from mtplxd.tune.plan import Step, name_of, plan_steps, settle_depths, settle_tokens
from mtplxd.tune.prompts import DEFAULT_SEED, Suite, load_suite, render_prompts
from mtplxd.tune.summary import summarise
from mtplxd.tune.tuning import Tuning as TuningRun
from mtplxd.tune.tuning import run_tuning
from mtplxd.tune.verification import Verification

REASON = "measuring"
"""What others wait for meanwhile."""
Write = Callable[[Any], Awaitable[object]]
"""Takes one event of a stream."""


@dataclass(frozen=True)
class _Asked:
    """A measurement as asked, checked as far as it can be without its model."""

    depths: tuple[int, ...]
    auto: bool
    tokens: int
    suite: Suite
    sampler: AskedSampler
    seed: int


@dataclass(frozen=True)
class _Plan:
    """What the engine is to do with a model in memory."""

    model: str
    steps: Sequence[Step]
    prompts: Sequence[list[int]]
    sampler: SamplerSettings
    notes: tuple[str, ...]


class Tuning(tuning_pb2_grpc.TuningServicer):
    """`files` runs what reads files or takes milliseconds, so that the loop never waits."""

    def __init__(
        self,
        engine: Engine,
        residency: Residency,
        files: Executor,
        facts: Facts,
        default_model: str | None,
        depths: DepthMemory,
        fans: Warden,
    ) -> None:
        self._fans = fans
        self._engine, self._residency, self._files, self._facts = engine, residency, files, facts
        self._default_model, self._depths = default_model, depths
        self._bandwidth_gb_s = 0.0

    async def Measure(self, request: Any, context: Any) -> None:
        asked = await self._in_files(read_measure, request)
        name = choose_model(request.model, self._default_model, self._residency)

        async def report(done: int, total: int) -> None:
            await context.write(measurements.load_event(done, total))

        headless = bool(asked.depths) and max(asked.depths) == 0 and not asked.auto
        lease = await acquire(self._residency, self._files, name, report, plain=headless)
        with until_handed_on(lease):
            plan = await self._in_files(self._prepare, asked, lease)

        async def tell(step: Progress) -> None:
            await context.write(measurements.progress_event(step))

        def work(say: Say, poll: Poll) -> Measurement:
            from mtplxd.tune.inprocess import EngineRunner

            self._bandwidth_gb_s = self._bandwidth_gb_s or measure_memory()
            runner = EngineRunner(self._engine, lease.model, plan.prompts, plan.sampler)
            return measure(runner, plan.steps, say, poll, time.perf_counter)

        with self._fans.hold("a measurement", wanted=not request.no_fans):
            found = await hold_engine(self._engine, lease, REASON, work, tell)
            place = await self._in_files(self._read_place)
        result = measurements.measurement_message(
            replace(found, notes=(*plan.notes, *found.notes)),
            place,
            self._facts.blas,
            model=plan.model,
            sampler=messages.sampler_message(plan.sampler),
            suite=asked.suite.name,
            max_tokens=asked.tokens,
        )
        await context.write(tuning_pb2.MeasureEvent(measurement=result))

    async def Verify(self, request: Any, context: Any) -> None:
        verification = await self.run_verify(request, context.write)
        await context.write(tuning_pb2.VerifyEvent(verification=verification))

    async def Tune(self, request: Any, context: Any) -> None:
        await context.write(tuning_pb2.TuneEvent(reply=await self.run_tune(request, context.write)))

    async def run_verify(self, request: Any, write: Write) -> Any:
        """The Verification that a VerifyRequest comes to; writes events of its progress. Cancelling it ends it."""
        asked = await self._in_files(verifying.read_verify, request)
        name = choose_model(request.model, self._default_model, self._residency)

        async def report(done: int, total: int) -> None:
            await write(verifying.load_event(done, total))

        async def tell(step: Progress) -> None:
            await write(verifying.progress_event(step))

        lease = await acquire(self._residency, self._files, name, report)
        with until_handed_on(lease):
            pack, depth_max = lease.model.pack, lease.model.depth_max
            ready = await self._in_files(verifying.prepare, asked, lease.model)
            await self._in_files(self._check_room, ready.longest + asked.tokens, lease)

        def work(say: Say, poll: Poll) -> Verification:
            from mtplxd.tune.verify import Verifier

            return Verifier(self._engine, lease.model, ready.plan, say, poll, time.perf_counter).run()

        found = await hold_engine(self._engine, lease, verifying.REASON, work, tell)
        place = await self._in_files(read_place, self._bandwidth_gb_s)
        kept = await self._in_files(
            verifying.keep, found, asked, pack, depth_max, ready.fingerprint, place, self._facts.blas
        )
        if kept.recorded or kept.withdrawn:
            with contextlib.suppress(MtplxError):  # a pack that went meanwhile takes no findings along
                await self._in_files(self._residency.rejudge, pack)
        return verifying.verification_message(
            found, pack.name, ready.fingerprint, kept, place, self._facts.blas
        )

    async def run_tune(self, request: Any, write: Write) -> Any:
        """The TuneReply that a TuneRequest comes to; writes events of its progress. Cancelling it ends it."""
        asked = await self._in_files(tunes.read_tune, request)
        name = choose_model(request.model, self._default_model, self._residency)

        async def report(done: int, total: int) -> None:
            await write(tunes.load_event(done, total))

        async def tell(step: Progress) -> None:
            await write(tunes.progress_event(step))

        lease = await acquire(self._residency, self._files, name, report)
        with until_handed_on(lease):
            ready = await self._in_files(tunes.prepare, asked, lease, self._depths)
            await self._in_files(self._check_room, tunes.longest(ready), lease)
            cached = await self._in_files(tunes.find_cached, asked, ready, self._depths)
        if cached is not None:
            lease.release()
            return cached

        def work(say: Say, poll: Poll) -> TuningRun:
            from mtplxd.tune.inprocess import EngineRunner

            self._bandwidth_gb_s = self._bandwidth_gb_s or measure_memory()
            runner = EngineRunner(self._engine, lease.model, ready.prompts, ready.sampler, ideal=False)
            return run_tuning(runner, ready.asked, say, poll, time.perf_counter)

        with self._fans.hold("a tuning", wanted=not request.no_fans):
            found = await hold_engine(self._engine, lease, REASON, work, tell)
            place = await self._in_files(self._read_place)
        return await self._in_files(
            tunes.conclude, found, asked, ready, self._depths, place, self._facts.blas
        )

    async def Summarise(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        runs = measurements.read_runs(request.runs)
        order = tuple(name_of(run.prompt, run.depth) for run in runs)
        found = Measurement(tuple(summarise(runs)), tuple(runs), order)
        place = await self._in_files(self._read_place)
        return measurements.measurement_message(
            found,
            place,
            self._facts.blas,
            model=request.model,
            sampler=request.sampler,
            suite=request.suite,
            max_tokens=request.max_tokens,
        )

    async def Suite(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        suite = await self._in_files(load_suite, request.suite, request.prompts, _seed_of(request))
        return measurements.suite_message(suite)

    def _prepare(self, asked: _Asked, lease: Lease) -> _Plan:
        """Settle what depends on the model. Raises InvalidArgument, ResourceExhausted."""
        model = lease.model
        settled = settle_sampler(asked.sampler, sampler_defaults(model.pack), model.target.vocab_size)
        depths, notes = settle_depths(asked.depths, model.depth_max, auto=asked.auto)
        if not any(depths):
            refuse_draft(asked.sampler.draft, "plain decoding drafts nothing")
        prompts = render_prompts(asked.suite, model.tokenizer)
        self._check_room(max(map(len, prompts)) + asked.tokens, lease)
        steps = plan_steps(asked.suite.prompts, depths, asked.tokens)
        return _Plan(model.name, steps, prompts, replace(settled, seed=asked.seed), notes)

    def _check_room(self, tokens: int, lease: Lease) -> None:
        model = lease.model
        if tokens > model.context:
            value = f"{tokens} tokens with the longest prompt, the context holds {model.context}"
            raise InvalidArgument(
                "answers are longer than the context", value, "lower max_tokens", field="max_tokens"
            )
        self._residency.check_context(model.pack, tokens)

    def _read_place(self) -> Place:
        """With who has the fans just now."""
        return read_place(self._bandwidth_gb_s, self._fans.look().label)

    async def _in_files(self, work: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._files, work, *args)


def read_measure(request: Any) -> _Asked:
    """A MeasureRequest, checked; reads the suite. Raises InvalidArgument naming the field.

    Its seed chooses prompts and randomness; it does not choose the rule, as an answer's would.
    """
    sampler, seed = read_sampler(request.sampler), _seed_of(request.sampler)
    if request.depths and not any(request.depths) and not request.auto:
        refuse_draft(sampler.draft, "plain decoding drafts nothing")
    return _Asked(
        depths=tuple(request.depths),
        auto=request.auto,
        tokens=settle_tokens(request.max_tokens),
        suite=load_suite(request.suite, request.prompts, seed),
        sampler=without_seed(sampler),
        seed=seed,
    )


def _seed_of(message: Any) -> int:
    return message.seed if message.HasField("seed") else DEFAULT_SEED
