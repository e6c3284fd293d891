"""What a generation yields: progress, text, log-probabilities and one final event, and the reply they add up to.

Owns no wire format and no display. All values are plain Python; times are seconds, rates tokens a second.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mtplx_client.errors import Internal

_OUTER = {"outer": True}
"""Marks a field that is the event's own, beside the message that the others are read from."""


@dataclass(frozen=True)
class Progress:
    """One step of long work: `stage` is queue, load, prefill, fetch, convert, write or measure; `total` 0 =
    unknown.
    """

    stage: str = ""
    done: int = 0
    total: int = 0
    unit: str = ""
    message: str = ""
    eta_s: float = 0.0
    choice: int = field(default=0, metadata=_OUTER)


@dataclass(frozen=True)
class Text:
    """A piece of the answer and the ids committed since the last piece; text may lag behind its tokens."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    choice: int = field(default=0, metadata=_OUTER)


@dataclass(frozen=True)
class TopLogprob:
    """One of the likeliest tokens of a position."""

    token: int = 0
    logprob: float = 0.0
    text: bytes = b""


@dataclass(frozen=True)
class TokenLogprob:
    """Natural log-probabilities of one token, from the model's raw logits; `text` is the token's own bytes.

    `top` are the likeliest, best first; `law` is the log of the probability the token was drawn with, after filters
    and penalties (None unless `law_logprobs` was asked for).
    """

    token: int = 0
    logprob: float = 0.0
    text: bytes = b""
    top: tuple[TopLogprob, ...] = ()
    law: float | None = None


@dataclass(frozen=True)
class Logprobs:
    """One entry a token of the Text that follows."""

    tokens: tuple[TokenLogprob, ...] = ()
    choice: int = field(default=0, metadata=_OUTER)


@dataclass(frozen=True)
class Usage:
    """Token counts of one answer."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class LogitBias:
    """What is added to one token's logit."""

    token: int = 0
    bias: float = 0.0


@dataclass(frozen=True)
class Sampler:
    """The sampler in force, every value filled in; `acceptance` is greedy or a rule's name.

    The draft's own temperature and top-k are None where drafts are drawn as the text is.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    acceptance: str = ""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[LogitBias, ...] = ()
    reproducible: bool = False
    draft_temperature: float | None = None
    draft_top_k: int | None = None


@dataclass(frozen=True)
class Paying:
    """Whether drafting pays on a model's traffic: at the `depth` that comes to most, `ratio` to plain decoding.

    `acceptance` is the share that, accepted at every position alike, gives as many tokens; drafting pays from
    `break_even` on.
    """

    pays: bool = False
    depth: int = 0
    ratio: float = 0.0
    acceptance: float = 0.0
    break_even: float = 0.0


@dataclass(frozen=True)
class Stats:
    """Numbers of one answer; `acceptance_by_position[i]` = rounds that accepted position i / rounds that
    drafted. `paying` is of the model's traffic so far, None while too little is known. `cache_miss` says why no more of
    the prompt was found, such as `diverged at 812`; empty where nothing was missing. `restore_s` is the part
    of `prefill_s` until the cached tokens were in place.
    """

    ttft_s: float = 0.0
    tok_s: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    acceptance_by_position: tuple[float, ...] = ()
    depth: int = 0
    depth_rounds: tuple[int, ...] = ()
    exactness: str = ""
    queue_s: float = 0.0
    load_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    degraded: tuple[str, ...] = ()
    judged_by_position: tuple[int, ...] = ()
    accepted_by_position: tuple[int, ...] = ()
    paying: Paying | None = None
    cache_miss: str = ""
    restore_s: float = 0.0


@dataclass(frozen=True)
class Kept:
    """What became of a turn of a session; `notices` are in words, and say why where it was not kept.

    `name` is the session it went into, a fork's own where `forked_from` names the other one.
    """

    name: str = ""
    turn: int = 0
    kept: bool = False
    forked_from: str = ""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Final:
    """The end of an answer.

    `finish_reason`: stop, length, cancelled or error; `message` explains an error; `session` is there where the
    request named one.
    """

    finish_reason: str = ""
    stop_origin: str = ""
    usage: Usage = field(default_factory=Usage)
    sampler: Sampler = field(default_factory=Sampler)
    stats: Stats = field(default_factory=Stats)
    model: str = ""
    message: str = ""
    session: Kept | None = None
    choice: int = field(default=0, metadata=_OUTER)


Event = Progress | Text | Logprobs | Final
"""`choice` says which of the answers to one prompt it is of, from 0."""


@dataclass(frozen=True)
class Reply:
    """A whole answer: the text, its token ids, and the final event's numbers.

    `logprobs` has an entry a token, None where none were asked for. Where several answers to the prompt were asked
    for, this is the first, and `choices` has them all.
    """

    text: str
    tokens: list[int]
    finish_reason: str
    stop_origin: str
    usage: Usage
    sampler: Sampler
    stats: Stats
    model: str
    message: str = ""
    logprobs: list[TokenLogprob] | None = None
    choices: tuple[Reply, ...] = ()
    session: Kept | None = None


class Collector:
    """Adds events up to a reply; lives for one answer."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprob] | None = None
        self.final: Final | None = None

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    def add(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, Text):
            self._texts.append(event.text)
            self.tokens.extend(event.tokens)
        elif isinstance(event, Logprobs):
            self.logprobs = self.logprobs or []
            self.logprobs.extend(event.tokens)
        elif isinstance(event, Final):
            self.final = event

    def reply(self) -> Reply:
        """The whole answer; only after the final event."""
        assert self.final is not None, "a reply is complete only after its final event"
        final = self.final
        return Reply(
            text=self.text,
            tokens=self.tokens,
            finish_reason=final.finish_reason,
            stop_origin=final.stop_origin,
            usage=final.usage,
            sampler=final.sampler,
            stats=final.stats,
            model=final.model,
            message=final.message,
            logprobs=self.logprobs,
            session=final.session,
        )


class Choices:
    """Adds up the events of several answers to one prompt, each to its own."""

    def __init__(self, count: int = 1) -> None:
        self.answers = [Collector() for _ in range(count)]

    def add(self, event: Event) -> None:
        """Take one event."""
        self.of(event).add(event)

    def of(self, event: Event) -> Collector:
        """The answer that an event belongs to."""
        if event.choice >= len(self.answers):
            raise Internal(
                "the daemon sent a choice that was not asked for", event.choice, "see `mtplx logs`"
            )
        return self.answers[event.choice]

    @property
    def complete(self) -> bool:
        """Whether every answer has its final event."""
        return all(answer.final is not None for answer in self.answers)

    def reply(self) -> Reply:
        """The first answer, with all of them where there are several; only when complete."""
        replies = tuple(answer.reply() for answer in self.answers)
        return replies[0] if len(replies) == 1 else replace(replies[0], choices=replies)
