"""A generation that goes on with a named session: its claim on it, what it goes on from, what is kept of its answer.

It moves values between the client's words, the engine's events and the store; how a session is kept is `store`'s, what
a template makes of it `families`'.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from mtplxd.engine.events import Event, Finished, Sink, Text
from mtplxd.engine.request import SamplerSettings
from mtplxd.errors import FailedPrecondition, InvalidArgument, MtplxError, NotFound
from mtplxd.rpc.calls import EarlyCall
from mtplxd.rpc.validate_sampler import AskedSampler
from mtplxd.rpc.validate_session import FORK, REFUSE, AskedSession
from mtplxd.store.claims import Claim, Claims, give_up
from mtplxd.store.conversation import Conversation, Message, Numbers, Summary, Turn, fork_names
from mtplxd.store.sessions import Sessions

log = logging.getLogger(__name__)

T = TypeVar("T")
Said = dict[str, str]
Tell = Callable[[str], Awaitable[None]]
"""Tells the client what it waits for."""
STALL = "stall"
CARRIED = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
"""What a turn takes from the one before; a seed, a rule and biases are said for each."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of a turn; `notices` are in words, and say why where it was not kept."""

    name: str
    turn: int
    kept: bool
    forked_from: str = ""
    notices: tuple[str, ...] = ()


class Desk:
    """Where generations take up sessions. Its one thread does what touches their file, in order."""

    def __init__(self, sessions: Sessions, claims: Claims) -> None:
        self.sessions, self.claims = sessions, claims
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sessions")

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Work on the sessions, on their thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    def submit(self, work: Callable[[], object]) -> Future[object]:
        """The same for whoever does not wait. Raises RuntimeError once it is closed."""
        return self._thread.submit(work)

    async def begin(self, asked: AskedSession, call: EarlyCall, tell: Tell) -> Talk:
        """The session, once nobody else answers in it. Raises FailedPrecondition where it is busy and that was not to
        be waited for, and what reading raises."""
        claim, fork = self.claims.take(asked.name), ""
        if claim is None and asked.busy == REFUSE:
            fix = "try again, or --session-busy wait, or go on with a copy: --session-busy fork"
            what = "the session answers somebody else"
            raise FailedPrecondition(what, asked.name, fix, reason="SESSION_BUSY")
        if claim is None and asked.busy == FORK:
            claim = await _granted(self._thread.submit(self._claim_fork, asked.name))
            fork = claim.name
        if claim is None:
            call.waits_for = f"the session {asked.name}, which answers somebody else"
            await tell(f"waits for {call.waits_for}")
            claim = await _granted(self.claims.ask(asked.name))
        try:
            before = await self.run(self.sessions.read, asked.name)
        except BaseException:
            claim.release()
            raise
        return Talk(self, claim, before or Conversation(Summary(asked.name)), fork)

    def close(self) -> None:
        """Waits until every answer that has ended is kept, then lets go of the file."""
        self._thread.shutdown(wait=True)
        self.sessions.close()

    def _claim_fork(self, name: str) -> Claim:
        """A name that no session has and nobody is about to give to one."""
        taken = {summary.name for summary in self.sessions.summaries()}
        names = (fork for fork in fork_names(name) if fork not in taken)
        return next(claim for fork in names if (claim := self.claims.take(fork)) is not None)


async def _granted(asked: Future[Claim]) -> Claim:
    """The claim that was asked for. Whoever stops waiting leaves it to others, even if it is his by then."""
    try:
        return await asyncio.wrap_future(asked)
    except BaseException:
        give_up(asked)
        raise


class Talk:
    """One turn of a session, from its claim to what is kept of it. Made on the loop; `listen` hears on the engine's
    thread, and `kept` is there with the answer's end."""

    def __init__(self, desk: Desk, claim: Claim, before: Conversation, fork: str = "") -> None:
        self._desk, self._claim, self._before, self._fork = desk, claim, before, fork
        self.kept: Kept | None = None
        self._asked: tuple[Message, ...] = ()
        self._prompt: tuple[int, ...] = ()
        self._numbers = Numbers("")
        self._fingerprint: Future[str] | None = None
        self._texts: list[str] = []
        self._ids: list[int] = []

    @property
    def model(self) -> str:
        """Who answered last, empty in a session that begins."""
        return self._before.summary.model

    def messages(self, asked: Sequence[Said]) -> tuple[Said, ...]:
        """The whole conversation with what is asked now. Raises InvalidArgument for another system text, and where
        that is all."""
        asked = list(asked)
        if self._before.messages and asked[0]["role"] == "system":
            if asked[0]["content"] != self._before.system:
                fix = "leave it out, or begin another session"
                raise InvalidArgument("the session has another system text", self.name, fix, field="system")
            del asked[0]
        if not asked:
            raise InvalidArgument("nothing new is said", self.name, "give a prompt", field="messages")
        self._asked = tuple(Message(said["role"], said["content"]) for said in asked)
        said = (*self._before.messages, *self._asked)
        return tuple({"role": message.role, "content": message.content} for message in said)

    def sampler(self, asked: AskedSampler) -> AskedSampler:
        """As asked; what is left out is as it was in the last turn."""
        if not self._before.turns:
            return asked
        last = json.loads(self._before.turns[-1].numbers.sampler)
        left_out = {name: last.get(name) for name in CARRIED if getattr(asked, name) is None}
        return replace(asked, **left_out)

    def spoken(self, ends: Collection[int]) -> dict[int, tuple[int, ...]]:
        """By the place of each answer its ids, without the tokens that ended it."""
        found = {}
        for place, message in enumerate(self._before.messages):
            ids = message.tokens
            while ids and ids[-1] in ends:
                ids = ids[:-1]
            if ids:
                found[place] = ids
        return found

    @property
    def name(self) -> str:
        """Of the session that the turn goes into."""
        return self._claim.name

    def explain(self, error: BaseException, named: str) -> BaseException:
        """What an error on the way to the answer means in a session that goes on; `named` is the model asked for."""
        if isinstance(error, NotFound) and self.model and not named:
            fix = f"{way_back(self.model)}, or go on with another: --model NAME"
            return NotFound("the session's model is gone", f"{self.name}: {self.model}", fix)
        if isinstance(error, InvalidArgument) and error.field == "prompt" and self._before.turns:
            fix = "begin another one, or say less"
            return InvalidArgument(f"session {self.name}: {error.what}", error.value, fix, field="prompt")
        return error

    def settle(
        self, model: str, fingerprint: Future[str], sampler: SamplerSettings, prompt: Sequence[int]
    ) -> None:
        """What the turn is answered by; `fingerprint` may come late."""
        self._prompt, self._fingerprint = tuple(prompt), fingerprint
        self._numbers = Numbers(model, sampler=json.dumps(asdict(sampler)))

    def listen(self, sink: Sink) -> Sink:
        """A sink that notes what it hears and keeps the turn before the other one hears of the end."""

        def hear(event: Event) -> None:
            if isinstance(event, Text):
                self._texts.append(event.text)
                self._ids += event.tokens
            if not isinstance(event, Finished):
                sink(event)
                return
            try:
                self._desk.submit(lambda: self._end(event, sink))
            except RuntimeError:  # the desk is closed: the daemon ends
                self.drop()
                sink(event)

        return hear

    def drop(self) -> None:
        """Nothing is kept, and the next one may answer."""
        self._claim.release()

    def _end(self, finished: Finished, sink: Sink) -> None:
        try:
            self.kept = self._keep(finished)
        except Exception as error:  # whatever it is, the answer reaches its client
            log.exception("a turn of a session could not be kept")
            self.kept = self._unkept(f"this turn is not kept ({type(error).__name__}): see `mtplx logs`")
        finally:
            self._claim.release()
            sink(finished)

    def _keep(self, finished: Finished) -> Kept:
        if not worth_keeping(finished, "".join(self._texts)):
            return self._unkept(f"this turn is not kept: its answer ended with {finished.stop_origin}")
        numbers = replace(
            self._numbers,
            fingerprint=self._known_fingerprint(),
            finish_reason=finished.finish_reason,
            stop_origin=finished.stop_origin,
            cached_tokens=finished.cached_tokens,
            at=time.time(),
        )
        turn = Turn(self._asked, "".join(self._texts), self._prompt, tuple(self._ids), numbers)
        try:
            number = self._desk.sessions.commit(self._before, turn, self._fork)
        except MtplxError as error:
            return self._unkept(f"this turn is not kept: {error}")
        notices = self._notices(numbers)
        return Kept(self.name, number, True, self._before.name if self._fork else "", notices)

    def _unkept(self, notice: str) -> Kept:
        return Kept(self.name, self._before.summary.turns + 1, False, notices=(notice,))

    def _known_fingerprint(self) -> str:
        made = self._fingerprint
        return made.result() if made is not None and made.done() and made.exception() is None else ""

    def _notices(self, numbers: Numbers) -> tuple[str, ...]:
        """What the user may not know of this turn."""
        last = self._before.summary
        found = []
        if self._fork:
            found.append(f"{last.name} answers somebody else: this turn went into its copy {self.name}")
        known = bool(last.fingerprint and numbers.fingerprint)
        same = known and last.fingerprint == numbers.fingerprint
        if last.model and last.model != numbers.model and not same:
            found.append(f"until now {last.model} answered in this session, from here on {numbers.model}")
        elif known and not same:
            found.append(f"{numbers.model} is no longer what it was when it answered here before")
        return tuple(found)


def way_back(model: str) -> str:
    """What brings a model back that is gone: one by the path of its folder is nowhere else."""
    return "put its folder back" if model.startswith("/") else f"`mtplx pull {model}`"


def worth_keeping(finished: Finished, text: str) -> bool:
    """An answer that ended well, or one that somebody cut off after he saw some of it; none that failed."""
    if finished.finish_reason == "cancelled":
        return bool(text) and finished.stop_origin != STALL
    return finished.finish_reason != "error"
