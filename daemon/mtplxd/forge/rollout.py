"""Makes training rows: many conversations in lockstep, one token a step, nothing computed twice.

Owns what is forced and what is sampled; the arithmetic is behind `Stepper`, the questions behind `draw`. Every row has
the same length, so there is no padding. A row is a conversation: questions come from the prompt generator or are made
up by the target itself, answers are sampled. Some rows run free after an answer, as text does when a stop is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mtplxd.forge.shards import ASKED, FORCED, GENERATED, Shard

Rng = np.random.Generator
Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass
class Step:
    """What the target says after one token a row: taps [B, T, H] float16, its K largest logits [B, K] descending with
    their ids, and the full vocabulary's logsumexp [B, 2] at temperature 1 and 0.6."""

    taps: npt.NDArray[np.float16]
    top_ids: Ints
    top_logits: Floats
    logsumexp: Floats


class Stepper(Protocol):
    """The target, stepping B rows in lockstep. What `step` returns is valid until the next step."""

    rows: int

    def reset(self) -> None:
        """Forgets all rows."""

    def step(self, tokens: Ints) -> Step:
        """Appends one token to every row."""


@dataclass(frozen=True)
class Turns:
    """Token ids of the chat template around a question: `first` opens a conversation, `again` starts at the end of an
    answer (its end token included), `close` leads from the end of a question to where the answer begins."""

    first: list[int]
    again: list[int]
    close: list[int]
    encode: Callable[[str], list[int]]

    @property
    def end(self) -> int:
        """The token that ends a turn, -1 where nothing comes after a question."""
        return self.close[0] if self.close else -1


@dataclass(frozen=True)
class Plan:
    """How rows are made. `temperatures` are (value, share); `ask_*` are shares of questions that the target makes up,
    at the start and later; `run_free` is the share of rows where nothing is forced after the first answer."""

    length: int = 200
    temperatures: tuple[tuple[float, float], ...] = ((0.6, 0.7), (0.3, 0.05), (0.8, 0.15), (1.0, 0.1))
    top_p: float = 0.95
    answer: tuple[int, int] = (110, 230)
    question: int = 64
    ask_first: float = 0.6
    ask_again: float = 0.6
    run_free: float = 0.25


class Row:
    """One conversation in progress: hands out what must come next, and takes what came."""

    def __init__(self, rng: Rng, turns: Turns, plan: Plan, draw: Callable[[Rng], str]) -> None:
        self._rng, self._turns, self._plan, self._draw = rng, turns, plan, draw
        values, shares = zip(*plan.temperatures, strict=True)
        self._answer_temperature = float(values[int(rng.choice(len(values), p=shares))])
        self._free = bool(rng.random() < plan.run_free)
        self._queue: list[int] = []
        self._speaker = FORCED
        self._left = 0
        self._open(turns.first, plan.ask_first)

    @property
    def temperature(self) -> float:
        """What the next token is sampled at; questions are made up at 1, for breadth."""
        return 1.0 if self._speaker == ASKED else self._answer_temperature

    def advance(self, sampled: int) -> tuple[int, int]:
        """The next token and its origin, given what was sampled for it."""
        if self._queue:
            return self._queue.pop(0), FORCED
        origin = self._speaker
        self._left -= 1
        if sampled == self._turns.end or (self._left <= 0 and not self._free):
            self._turn_over(sampled)
            if sampled != self._turns.end:
                return self._queue.pop(0), FORCED
        return sampled, origin

    def _turn_over(self, sampled: int) -> None:
        done = sampled == self._turns.end
        if self._speaker == ASKED:
            self._queue = self._turns.close[done:]
            self._answer()
        elif not self._free:
            self._open(self._turns.again[done:], self._plan.ask_again)

    def _open(self, lead: list[int], ask: float) -> None:
        if self._rng.random() < ask:
            self._queue = list(lead)
            self._speaker, self._left = ASKED, self._plan.question
        else:
            self._queue = [*lead, *self._turns.encode(self._draw(self._rng)), *self._turns.close]
            self._answer()

    def _answer(self) -> None:
        self._speaker = GENERATED
        self._left = int(self._rng.integers(*self._plan.answer))


def sample(step: Step, temperatures: Floats, top_p: float, uniforms: Floats) -> Ints:
    """One token a row from the K largest logits: temperature, then the smallest set that holds `top_p`."""
    scaled = step.top_logits / temperatures[:, None]
    weights = np.exp(scaled - scaled[:, :1])
    weights /= weights.sum(axis=1, keepdims=True)
    before = np.cumsum(weights, axis=1) - weights
    weights[before >= top_p] = 0.0
    heights = np.cumsum(weights, axis=1)
    places = (heights < uniforms[:, None] * heights[:, -1:]).sum(axis=1)
    chosen = np.take_along_axis(step.top_ids, np.minimum(places, scaled.shape[1] - 1)[:, None], axis=1)
    return chosen[:, 0].astype(np.int32)


def roll(
    stepper: Stepper,
    turns: Turns,
    draw: Callable[[Rng], str],
    plan: Plan,
    rng: Rng,
    breathe: Callable[[], None] = lambda: None,
) -> Shard:
    """One shard of `stepper.rows` finished rows. The same generator state gives the same questions and uniforms.

    `breathe` is called before each token; what it raises ends the shard.
    """
    count, length = stepper.rows, plan.length
    rows = [Row(child, turns, plan, draw) for child in rng.spawn(count)]
    tokens, origin = np.zeros((count, length), np.int32), np.zeros((count, length), np.uint8)
    kept: list[Step] = []
    stepper.reset()
    sampled = np.zeros(count, np.int32)
    for place in range(length):
        breathe()
        for index, row in enumerate(rows):
            tokens[index, place], origin[index, place] = row.advance(int(sampled[index]))
        step = _copy(stepper.step(tokens[:, place]))
        kept.append(step)
        temperatures = np.array([row.temperature for row in rows], np.float32)
        sampled = sample(step, temperatures, plan.top_p, rng.random(count, np.float32))
    ids = np.uint16 if tokens.max() < 1 << 16 else np.int32
    return Shard(
        tokens=tokens.astype(ids),
        origin=origin,
        taps=np.stack([step.taps for step in kept], axis=1),
        top_ids=np.stack([step.top_ids for step in kept], axis=1).astype(ids),
        top_logprobs=np.stack([step.top_logits - step.logsumexp[:, :1] for step in kept], axis=1).astype(
            np.float16
        ),
        logsumexp=np.stack([step.logsumexp for step in kept], axis=1),
    )


def _copy(step: Step) -> Step:
    return Step(step.taps.copy(), step.top_ids.copy(), step.top_logits.copy(), step.logsumexp.copy())
