"""The Generation service: a request's way from words to the engine, and its events' way back."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtplx_proto.v1 import generation_pb2_grpc

from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Finished, Logprobs, Progress, Text
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.errors import InvalidArgument
from mtplxd.packs.gate import Consent
from mtplxd.residency.catalog import sampler_defaults
from mtplxd.residency.entry import Lease
from mtplxd.residency.manager import Residency, check_depth
from mtplxd.rpc import handshake, messages
from mtplxd.rpc.bridge import Bridge
from mtplxd.rpc.calls import EarlyCall, EarlyCalls, request_id
from mtplxd.rpc.leasing import acquire, choose_model, until_handed_on
from mtplxd.rpc.validate import AUTO_DEPTH, Asked, read_generate
from mtplxd.rpc.validate_sampler import refuse_draft, settle_sampler

if TYPE_CHECKING:  # the daemon serves before model libraries are imported
    from mtplxd.engine.grammar import Grammar
    from mtplxd.families.tokenizer import Tokenizer

UNREAD_LIMIT = 4096
"""Events a client may leave unread before its request is cancelled."""
TOO_SLOW = "the client left too many events unread: read faster, or ask for fewer tokens"


@dataclass(frozen=True)
class _Plan:
    """What was settled before the engine got the request."""

    model: str
    sampler: SamplerSettings
    tokenizer: Tokenizer
    law_logprobs: bool
    load_s: float


class Generation(generation_pb2_grpc.GenerationServicer):
    """Streams progress, text and one final event, or ends with a status before any work."""

    def __init__(
        self,
        engine: Engine,
        residency: Residency,
        early: EarlyCalls,
        files: Executor,
        default_model: str | None,
    ) -> None:
        self._engine, self._residency, self._early, self._files = engine, residency, early, files
        self._default_model = default_model
        self._tokenising = ThreadPoolExecutor(1, thread_name_prefix="tokenise")
        self._compiling = ThreadPoolExecutor(1, thread_name_prefix="compile")

    async def Generate(self, request: Any, context: Any) -> None:
        asked = read_generate(request)
        call = EarlyCall(
            id=request_id.get(),
            client=_client_of(context),
            model=choose_model(asked.model, self._default_model, self._residency),
        )
        events: Bridge[Event] = Bridge(UNREAD_LIMIT, lambda: self._engine.cancel(call.id, "client"))
        try:
            with self._early.enter(call):
                plan = await call.run(self._begin(asked, call, context, events))
            await self._stream(plan, context, events)
        finally:
            events.close()
            self._engine.cancel(call.id, _origin_of_end(context))

    async def _begin(self, asked: Asked, call: EarlyCall, context: Any, events: Bridge[Event]) -> _Plan:
        """Load the model, tokenise, check against the model, hand to the engine."""
        deadline = _deadline_of(context)
        begin = time.monotonic()

        async def report(done: int, total: int) -> None:
            event = messages.progress_event(Progress("load", done, total))
            await context.write(event)

        consent = Consent(plain=asked.plain, force=asked.force)
        wish = {"plain": asked.plain, "depth": asked.depth, "consent": consent}
        lease = await acquire(self._residency, self._files, call.model, report, **wish)
        load_s = time.monotonic() - begin
        with until_handed_on(lease):
            call.state = "queue"
            request = await self._prepare(asked, call, lease, deadline)
            longest = min(len(request.prompt) + (asked.max_tokens or 0), lease.model.context)
            self._residency.check_context(lease.model.pack, longest)
            return self._submit(request, lease, load_s, events)

    async def _prepare(self, asked: Asked, call: EarlyCall, lease: Lease, deadline: float | None) -> Request:
        """The engine's request. Raises InvalidArgument or FailedPrecondition where the model cannot meet it."""
        model = lease.model
        sampler, depth = settle_sampling(asked, lease)
        refuse_hopeless(asked, lease)
        loop = asyncio.get_running_loop()
        prompt = await loop.run_in_executor(self._tokenising, tokenise, asked, lease)
        grammar = await loop.run_in_executor(self._compiling, compile_structure, asked, lease)
        check_prompt(prompt, lease)
        return Request(
            id=call.id,
            client=call.client,
            model=model,
            prompt=prompt,
            sampler=sampler,
            max_tokens=asked.max_tokens or model.context,
            stop=asked.stop,
            ignore_eos=asked.ignore_eos,
            depth=depth,
            deadline=deadline,
            logprobs=asked.logprobs,
            law_logprobs=asked.law_logprobs,
            grammar=grammar,
        )

    def _submit(self, request: Request, lease: Lease, load_s: float, events: Bridge[Event]) -> _Plan:
        def sink(event: Event) -> None:
            if isinstance(event, Finished):
                lease.release()
                events.finish(event)
            else:
                events.put(event)

        model = request.model
        plan = _Plan(model.name, request.sampler, model.tokenizer, request.law_logprobs, load_s)
        self._engine.submit(request, sink)
        return plan

    async def _stream(self, plan: _Plan, context: Any, events: Bridge[Event]) -> None:
        while True:
            event = await events.get()
            if isinstance(event, Text):
                await context.write(messages.text_event(event))
            elif isinstance(event, Logprobs):
                await context.write(
                    messages.logprobs_event(event, plan.tokenizer.token_bytes, plan.law_logprobs)
                )
            elif isinstance(event, Progress):
                await context.write(messages.progress_event(event))
            else:
                message = TOO_SLOW if events.overflowed else ""
                final = messages.final_event(event, plan.sampler, plan.model, plan.load_s, message)
                await context.write(final)
                return


def refuse_hopeless(asked: Asked, lease: Lease) -> None:
    """Raises InvalidArgument for a text that no tokenisation brings into the context.

    Tokenising a huge text takes minutes, in which nobody else's prompt is tokenised.
    """
    texts = [asked.text or "", *(message["content"] for message in asked.messages or ())]
    size, longest = sum(len(text.encode()) for text in texts), lease.model.tokenizer.longest_token
    least, context = -(-size // longest), lease.model.context
    if least > context:
        raise InvalidArgument(
            "prompt is longer than the context",
            f"{size} bytes are at least {least} tokens, the context holds {context}",
            "shorten it so that at least one token fits behind it",
            field="prompt",
        )


def settle_sampling(asked: Asked, lease: Lease) -> tuple[SamplerSettings, int]:
    """The sampler in force and the depth. Raises InvalidArgument or FailedPrecondition where the model cannot."""
    model = lease.model
    sampler = settle_sampler(asked.sampler, sampler_defaults(model.pack), model.target.vocab_size)
    depth = settle_depth(asked, lease)
    if depth == 0:
        refuse_draft(asked.sampler.draft, "this model decodes plainly here, and drafts nothing")
    return sampler, depth


def compile_structure(asked: Asked, lease: Lease) -> Grammar | None:
    """None where the text is free; may take long, so never on the loop. Raises InvalidArgument naming the field."""
    if asked.structure is None:
        return None
    from mtplxd.engine.grammar import compile_grammar

    model, structure = lease.model, asked.structure
    return compile_grammar(
        structure.kind, structure.text, model.tokenizer, model.target.vocab_size, model.eos_ids
    )


def tokenise(asked: Asked, lease: Lease) -> list[int]:
    """The prompt's ids; may take long, so never on the loop. Raises InvalidArgument for unknown ones."""
    tokenizer = lease.model.tokenizer
    if asked.tokens is not None:
        beyond = next((token for token in asked.tokens if token >= tokenizer.vocab_size), None)
        if beyond is not None:
            fix = f"the model has {tokenizer.vocab_size} tokens"
            raise InvalidArgument("unknown token id", beyond, fix, field="tokens")
        return list(asked.tokens)
    if asked.text is not None:
        return tokenizer.encode(asked.text)
    return tokenizer.render_chat([dict(message) for message in asked.messages or ()])


def check_prompt(prompt: list[int], lease: Lease) -> None:
    """Raises InvalidArgument where the model cannot go on from it."""
    context = lease.model.context
    if not prompt:
        raise InvalidArgument("empty prompt", "0 tokens", "give some text", field="prompt")
    if len(prompt) >= context:
        raise InvalidArgument(
            "prompt is longer than the context",
            f"{len(prompt)} tokens, the context holds {context}",
            "shorten it so that at least one token fits behind it",
            field="prompt",
        )


def settle_depth(asked: Asked, lease: Lease) -> int:
    """The request's depth, else the model's own. Raises where the head cannot draft that far."""
    if asked.plain:
        return 0
    if asked.depth is None or asked.depth == AUTO_DEPTH:
        return lease.depth
    check_lease_depth(asked.depth, lease)
    return asked.depth


def check_lease_depth(depth: int, lease: Lease) -> None:
    """`check_depth` for a model in memory."""
    model = lease.model
    check_depth(depth, model.depth_max if model.head is not None else 0, model.name)


def _client_of(context: Any) -> str:
    """Whom the queue is fair to: what the client calls itself, else its connection."""
    said = handshake.read(context.invocation_metadata() or (), handshake.CLIENT_KEY)
    return said or str(context.peer())


def _deadline_of(context: Any) -> float | None:
    remaining = context.time_remaining()
    return None if remaining is None else time.monotonic() + remaining


def _origin_of_end(context: Any) -> str:
    """Why a stream ends early: its deadline, else its client. Means nothing where it ended by itself."""
    remaining = context.time_remaining()
    return "deadline" if remaining is not None and remaining <= 0 else "client"
