"""What a request's owner hears: progress, text, and exactly one `Finished`. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NON_FINITE, GRAMMAR = "non_finite", "grammar"
"""What ends a row in the middle: numbers of the target that are none, a grammar that failed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of the way to the first token; `stage` is `queue` (requests) or `prefill` (tokens)."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Text:
    """Text that became certain, and the ids committed since the last event; text may lag behind ids."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural log-probabilities of one committed token: log-softmax of the target's raw logits.

    `top` are the likeliest ids, best first; `law` is the log of the probability the token was drawn with, after
    filters and penalties, None where it was not asked for.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    law: float | None = None


@dataclass(frozen=True, slots=True)
class Logprobs:
    """One entry a token of the `Text` event it precedes."""

    tokens: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Stats:
    """Numbers of one answer; seconds and tokens a second.

    `depth` is what was asked for, of an answer whose depths were chosen as it went what most rounds had; `depth_rounds`
    are the rounds at each depth. A position counts as judged in each round that drafted it, except where the text ended
    before it was decided. `cache_miss` says why no more of the prompt was found, with the position where it diverged.
    `restore_s` is the part of `prefill_s` until what was found was in place.
    """

    ttft_s: float = 0.0
    tok_s: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_by_position: tuple[int, ...] = ()
    judged_by_position: tuple[int, ...] = ()
    depth: int = 0
    exactness: str = "exact"
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    degraded: tuple[str, ...] = ()
    depth_rounds: tuple[int, ...] = ()
    cache_miss: str = ""
    restore_s: float = 0.0

    @property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """Rounds that accepted position i / rounds that drafted it."""
        pairs = zip(self.accepted_by_position, self.judged_by_position, strict=True)
        return tuple(accepted / judged if judged else 0.0 for accepted, judged in pairs)


@dataclass(frozen=True, slots=True)
class Finished:
    """The one terminal event. `message` says what happened and what to do when the reason is `error`."""

    finish_reason: str
    stop_origin: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    stats: Stats
    message: str = ""


Event = Progress | Text | Logprobs | Finished
Sink = Callable[[Event], None]
"""Called on the engine thread; must not block."""
