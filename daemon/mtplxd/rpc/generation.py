"""The Generation service: a request's way from words to the engine, and its events' way back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mtplx_proto.v1 import generation_pb2_grpc

from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Progress
from mtplxd.engine.request import STORE_ON, Request
from mtplxd.engine.scheduling.admission import row_need
from mtplxd.errors import DeadlineExceeded, MtplxError
from mtplxd.packs.gate import Consent
from mtplxd.packs.pack import Pack
from mtplxd.packs.text_fingerprint import text_fingerprint
from mtplxd.residency.entry import Lease
from mtplxd.residency.manager import Residency
from mtplxd.rpc import handshake, messages
from mtplxd.rpc.answers import UNREAD_LIMIT, Answers, Plan
from mtplxd.rpc.calls import EarlyCall, EarlyCalls, request_id
from mtplxd.rpc.conversing import Desk, Talk
from mtplxd.rpc.lanes import Lanes
from mtplxd.rpc.leasing import acquire, choose_model, until_handed_on
from mtplxd.rpc.settling import (
    Spoken,
    check_prompt,
    choice_samplers,
    compile_structure,
    refuse_hopeless,
    settle_sampling,
    tokenise,
)
from mtplxd.rpc.settling_store import settle_store
from mtplxd.rpc.unread import whom_to_give_up
from mtplxd.rpc.validate import Asked, Structure, read_generate
from mtplxd.rpc.validate_session import AskedSession, read_session, read_store

if TYPE_CHECKING:  # the daemon serves before model libraries are imported
    from mtplxd.engine.grammar import Grammar

TRAVEL_S = 0.25
"""Most that a request takes from its client to us, on a busy machine."""


class Generation(generation_pb2_grpc.GenerationServicer):
    """Streams progress, text and one final event a choice, or ends with a status before any work."""

    def __init__(
        self,
        engine: Engine,
        residency: Residency,
        early: EarlyCalls,
        files: Executor,
        default_model: str | None,
        unread_limit: int = UNREAD_LIMIT,
        *,
        desk: Desk,
        store: str = STORE_ON,
    ) -> None:
        """`store` is what the daemon has to do with the disk."""
        self._engine, self._residency, self._early, self._files = engine, residency, early, files
        self._default_model, self._unread_limit = default_model, unread_limit
        self._desk, self._store = desk, store
        self._tokenising = ThreadPoolExecutor(1, thread_name_prefix="tokenise")
        self._compiling = ThreadPoolExecutor(1, thread_name_prefix="compile")
        self._hashing = ThreadPoolExecutor(1, thread_name_prefix="fingerprint")
        self._prompts, self._grammars = Lanes(), Lanes()
        self._open: set[Answers] = set()
        self._stall: Callable[[], MtplxError] | None = None

    async def Generate(self, request: Any, context: Any) -> None:
        deadline = _deadline_of(context)
        asked, session, store = read_generate(request), read_session(request), read_store(request.store)
        settle_store(store, None, self._store)
        if self._stall is not None:
            raise self._stall()
        call = EarlyCall(
            id=request_id.get(),
            client=_client_of(context),
            model=asked.model if session else self._choose(asked.model),
            priority=asked.priority,
        )
        for unread in whom_to_give_up(self._open, time.monotonic()):
            unread.give_up()
        answers = Answers(self._engine, call.id, asked.n, self._unread_limit)
        self._open.add(answers)
        try:
            with self._early.enter(call):
                work = self._begin(asked, call, context, deadline, answers, session, store)
                plan = await call.run(work)
            await answers.write(plan, context)
        finally:
            self._open.discard(answers)
            answers.close()
            answers.cancel(origin_of_end(context.time_remaining()))

    def stall(self, error: Callable[[], MtplxError]) -> None:
        """The engine does not go on: ends every stream and refuses new ones, until `recover`."""
        self._stall = error
        for call in self._early.all():
            call.fail(error())
        for answers in tuple(self._open):
            answers.stall(str(error()))

    def recover(self) -> None:
        """The engine goes on."""
        self._stall = None

    async def _begin(
        self,
        asked: Asked,
        call: EarlyCall,
        context: Any,
        deadline: float | None,
        answers: Answers,
        session: AskedSession | None,
        store: str | None,
    ) -> Plan:
        """Take up the session, load the model, tokenise, check against the model, hand to the engine."""

        async def tell(message: str) -> None:
            await context.write(messages.waiting_event(message))

        if session is None:
            return await self._start(asked, call, context, deadline, answers, None, store)
        talk = await self._desk.begin(session, call, tell)
        try:
            asked = replace(asked, messages=talk.messages(asked.messages or ()))
            if asked.model in ("", talk.model):  # another model has a sampler of its own
                asked = replace(asked, sampler=talk.sampler(asked.sampler))
            call.model = self._choose(asked.model or talk.model)
            return await self._start(asked, call, context, deadline, answers, talk, store)
        except BaseException as error:
            talk.drop()
            raise talk.explain(error, asked.model) from None

    async def _start(
        self,
        asked: Asked,
        call: EarlyCall,
        context: Any,
        deadline: float | None,
        answers: Answers,
        talk: Talk | None,
        store: str | None,
    ) -> Plan:
        begin = time.monotonic()

        async def report(done: int, total: int) -> None:
            event = messages.progress_event(Progress("load", done, total))
            await context.write(event)

        call.waits_for = "its model"
        consent = Consent(plain=asked.plain, force=asked.force)
        wish = {"plain": asked.plain, "depth": asked.depth, "consent": consent}
        lease = await acquire(self._residency, self._files, call.model, report, **wish)
        load_s = time.monotonic() - begin
        with until_handed_on(lease):
            call.state = "queue"
            if asked.keep_alive_s is not None:
                told = asked.keep_alive_s
                self._residency.configure(lease, keep_alive_s=told, keep_alive_from="request")
            use = settle_store(store, lease.store, self._store)
            prepared = await self._prepare(asked, call, lease, deadline, answers.ids, talk)
            requests = [replace(request, store=use) for request in prepared]
            model, prompt = lease.model, requests[0].prompt
            need = row_need(len(prompt), requests[0].max_tokens, model.context)
            self._residency.check_context(model.pack, need.most)
            samplers = tuple(request.sampler for request in requests)
            law = asked.law_logprobs
            plan = Plan(model.name, samplers, model.tokenizer, law, load_s, len(prompt))
            if talk is not None:
                fingerprint = self._hashing.submit(text_fingerprint, model.pack)
                named = asked.model or talk.model or self._default_model
                talk.settle(named or _reference(model.pack), fingerprint, samplers[0], prompt)
        answers.submit(requests, lease, talk)
        return plan

    def _choose(self, model: str) -> str:
        return choose_model(model, self._default_model, self._residency)

    async def _prepare(
        self,
        asked: Asked,
        call: EarlyCall,
        lease: Lease,
        deadline: float | None,
        ids: tuple[str, ...],
        talk: Talk | None,
    ) -> list[Request]:
        """A request a choice. Raises InvalidArgument or FailedPrecondition where the model cannot meet it."""
        model = lease.model
        sampler, depth = settle_sampling(asked, lease)
        refuse_hopeless(asked, lease)
        spoken = talk.spoken(model.eos_ids) if talk is not None else None
        prompt = await self._tokenise(asked, call, lease, spoken)
        check_prompt(prompt, lease)
        grammar = None if asked.structure is None else await self._compile(asked.structure, call, lease)
        first = Request(
            id=call.id,
            client=call.client,
            model=model,
            prompt=prompt,
            sampler=sampler,
            max_tokens=asked.max_tokens or model.context,
            stop=asked.stop,
            ignore_eos=asked.ignore_eos,
            depth=depth.most,
            auto=depth.auto,
            deadline=deadline,
            logprobs=asked.logprobs,
            law_logprobs=asked.law_logprobs,
            grammar=grammar,
            priority=asked.priority,
        )
        samplers = choice_samplers(sampler, len(ids))
        return [replace(first, id=one, sampler=own) for one, own in zip(ids, samplers, strict=True)]

    async def _tokenise(
        self, asked: Asked, call: EarlyCall, lease: Lease, spoken: Spoken | None
    ) -> list[int]:
        call.waits_for = "its client's other prompts"
        async with self._prompts.enter(call.client):
            call.waits_for = "its prompt's tokens"
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._tokenising, tokenise, asked, lease, spoken)

    async def _compile(self, structure: Structure, call: EarlyCall, lease: Lease) -> Grammar:
        call.waits_for = "its client's other grammars"
        async with self._grammars.enter(call.client):
            call.waits_for = "its grammar"
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._compiling, compile_structure, structure, lease)


def _reference(pack: Pack) -> str:
    """What names a pack later on, when it is no longer the only one in memory."""
    return pack.name if pack.path.parent.name == "packs" else str(pack.path)


def _client_of(context: Any) -> str:
    """Whom the queue is fair to: what the client calls itself, else its connection."""
    said = handshake.read(context.invocation_metadata() or (), handshake.CLIENT_KEY)
    return said or str(context.peer())


def _deadline_of(context: Any) -> float | None:
    """On the monotonic clock. Raises DeadlineExceeded for one that has passed: no work is begun for it."""
    remaining = context.time_remaining()
    if remaining is None:
        return None
    if remaining <= 0:
        raise DeadlineExceeded("the deadline has passed already", None, "allow more with --timeout")
    return time.monotonic() + float(remaining)


def origin_of_end(remaining: float | None) -> str:
    """Why a stream ends early with so many seconds left: its deadline, else its client. Means nothing where it ended
    by itself.

    The client's clock began before ours, by the way of the request: it gives up that much before we would.
    """
    return "deadline" if remaining is not None and remaining <= TRAVEL_S else "client"
