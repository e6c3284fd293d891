"""Grammar masks of one round: walks each row's matcher along its drafts, and back. Applying them is `shaping`'s.

A row without a grammar, or whose drafts left it, has nothing masked. On the host alone: no arrays of the device.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from mtplxd.engine.row import Row

log = logging.getLogger(__name__)

MASK_DRAFTS = True
"""Whether drafts keep to their row's grammar. Measured on SmolLM2 at depth 3 (tests/bench/results/structured.json): a
round then gives 2.0 tokens instead of 1.6 under a JSON schema (sampled 2.3 instead of 1.7) and 1.6 instead of 1.5 under
a regex (1.65 instead of 1.5), for half again as much work in the matcher, 3 % of a round's processor time in all."""


class MaskWalk:
    """The masks of k+1 positions of B rows, made one position at a time.

    `limits[b]` drafts of row b count: it is followed no further. A row whose matcher raises is one of `failed` and has
    nothing masked from then on.
    """

    def __init__(self, rows: Sequence[Row], size: int) -> None:
        self._matchers = [row.matcher for row in rows]
        self._walked = [0] * len(rows)
        self._size = size
        self.limits: Sequence[int] | None = None
        self.failed: set[int] = set()
        self.masks: list[np.ndarray] = []
        self._lost = self._without_matcher()

    @property
    def needed(self) -> bool:
        """Whether any row has a grammar."""
        return any(matcher is not None for matcher in self._matchers)

    def look(self) -> np.ndarray:
        """The mask bool [B, V] of the next position."""
        self.masks.append(np.stack([self._mask(b) for b in range(len(self._matchers))]))
        return self.masks[-1]

    def step(self, tokens: Sequence[int]) -> None:
        """Goes past a draft of each row. What a row's grammar refuses is never accepted: it is followed no further."""
        for b, (matcher, token) in enumerate(zip(self._matchers, tokens, strict=True)):
            if matcher is None or self._lost[b]:
                continue
            if self.limits is not None and self._walked[b] >= self.limits[b]:
                self._lost[b] = True
                continue
            try:
                if matcher.advance(token):
                    self._walked[b] += 1
                    self._lost[b] = matcher.complete
                else:
                    self._lost[b] = True
            except Exception:  # a grammar may break on one text: its row ends alone
                self._fail(b)

    def finish(self, drafts: Sequence[Sequence[int]]) -> np.ndarray:
        """All masks bool [B, k+1, V] for drafts [B][k], however far the walk has come; the matchers are back after."""
        columns = list(zip(*drafts, strict=True))
        for column in columns[len(self.masks) :]:
            self.look()
            self.step(column)
        self.look()
        self.go_back()
        return np.stack(self.masks, axis=1)

    def restart(self) -> None:
        """Begins anew at the committed text."""
        self.go_back()
        self.masks.clear()
        self._lost = self._without_matcher()

    def go_back(self) -> None:
        """Takes every step back."""
        for b, matcher in enumerate(self._matchers):
            try:
                if matcher is not None and self._walked[b]:
                    matcher.roll_back(self._walked[b])
            except Exception:  # as above
                self._fail(b)
            self._walked[b] = 0

    def _mask(self, b: int) -> np.ndarray:
        matcher, everything = self._matchers[b], np.ones(self._size, np.bool_)
        if matcher is None or self._lost[b]:
            return everything
        try:
            mask = matcher.mask()
        except Exception:  # as above
            self._fail(b)
            return everything
        # Where a grammar leads nowhere the token drawn is refused at the commit, which ends the text with an error.
        return mask if mask.any() else everything

    def _fail(self, b: int) -> None:
        log.exception("a row's grammar failed")
        self.failed.add(b)
        self._lost[b] = True

    def _without_matcher(self) -> list[bool]:
        return [matcher is None or b in self.failed for b, matcher in enumerate(self._matchers)]


def within_vocab(mask: np.ndarray, vocab: np.ndarray) -> np.ndarray:
    """A mask [B, V] over a reduced draft vocabulary [D]: [B, D], whole where nothing of it is allowed."""
    part = mask[:, vocab]
    return part | ~part.any(axis=1, keepdims=True)
