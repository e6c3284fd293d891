"""Where a text ends inside a round: a stop token, a stop string, the token limit, the context. Pure; cuts no caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtplxd.engine.request import Request
from mtplxd.engine.text import TextStream

if TYPE_CHECKING:
    from mtplxd.engine.grammar import Matcher


@dataclass(frozen=True, slots=True)
class End:
    """Why a text ended. Reasons and origins are those of the contract."""

    reason: str
    origin: str
    message: str = ""


EOS = End("stop", "eos")
STOP_STRING = End("stop", "stop_string")
MAX_TOKENS = End("length", "max_tokens")
CONTEXT = End("length", "context")
GRAMMAR = End("stop", "grammar")
STUCK = End(
    "error",
    "grammar",
    "no token of this model continues what the text must match: loosen the schema or grammar",
)


class StopRule:
    """Judges tokens in order for one request. The token that completes a stop is kept; what follows it is not.

    It moves the row's matcher along with the kept tokens, stop tokens excepted.
    """

    def __init__(self, request: Request, matcher: Matcher | None = None) -> None:
        self._matcher = matcher
        self._eos = frozenset() if request.ignore_eos else request.model.eos_ids
        self._limit = request.max_tokens
        self._room = request.model.context - len(request.prompt)

    def cut(self, tokens: Sequence[int], made: int, text: TextStream) -> tuple[int, End | None]:
        """How many of a round's tokens are kept, and the end they reach; `made` tokens came before them.

        Feeds the kept tokens to `text`, stop tokens excepted: they are no text.
        """
        for place, token in enumerate(tokens, start=1):
            if token in self._eos and self._may_end_with(token):
                return place, EOS
            if self._matcher and not self._matcher.advance(token):
                return place - 1, STUCK
            if text.push(token):
                return place, STOP_STRING
            if self._matcher and self._matcher.complete:
                return place, GRAMMAR
            if made + place >= self._limit:
                return place, MAX_TOKENS
            if made + place >= self._room:
                return place, CONTEXT
        return len(tokens), None

    def _may_end_with(self, token: int) -> bool:
        """Where nothing goes on, nothing is masked: a stop token says no more than any other then."""
        return self._matcher is None or bool(self._matcher.mask()[token])

    def left(self, made: int) -> int:
        """How many more tokens could be made."""
        return min(self._limit, self._room) - made
