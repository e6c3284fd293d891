"""A regular language over a table model's few ids: a matcher that ends texts, small enough to enumerate.

Speaks the engine's matcher protocol. What is allowed follows from the state alone, so that a test can read it off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Moves = Sequence[Mapping[int, int]]
"""Of each state: where a token leads. State 0 is the beginning."""


@dataclass(frozen=True)
class TableLanguage:
    """`final` are the states a text may end in; `size` and `eos` those of the model."""

    moves: Moves
    final: frozenset[int]
    size: int = 5
    eos: frozenset[int] = frozenset()

    def start(self) -> LanguageMatcher:
        """A matcher of the empty text."""
        return LanguageMatcher(self)

    def after(self, text: Sequence[int]) -> LanguageMatcher:
        """A matcher that has consumed a text."""
        matcher = self.start()
        assert all(matcher.advance(token) for token in text)
        return matcher

    def state(self, text: Sequence[int]) -> int | None:
        """Where a text leads; None for one that leaves the language."""
        state = 0
        for token in text:
            if token in self.eos or token not in self.moves[state]:
                return None
            state = self.moves[state][token]
        return state

    def matches(self, text: Sequence[int]) -> bool:
        """Whether a whole text is of the language."""
        return self.state(text) in self.final


@dataclass
class LanguageMatcher:
    """One row's place: the tokens consumed so far."""

    language: TableLanguage
    consumed: list[int] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return self._state in self.language.final and not self.language.moves[self._state]

    def mask(self) -> np.ndarray:
        allowed = np.zeros(self.language.size, np.bool_)
        allowed[list(self.language.moves[self._state])] = True
        allowed[list(self.language.eos)] = self._state in self.language.final
        return allowed

    def advance(self, token: int) -> bool:
        if self.language.state([*self.consumed, token]) is None:
            return False
        self.consumed.append(token)
        return True

    def roll_back(self, count: int) -> None:
        assert 0 <= count <= len(self.consumed)
        del self.consumed[len(self.consumed) - count :]

    @property
    def _state(self) -> int:
        state = self.language.state(self.consumed)
        assert state is not None
        return state
