"""Makes a run's rows, one numbered shard after the other: those that are trained on and those that are held out.

Owns seeds and which shards are missing; how a row comes about is `rollout`'s. A shard is a function of its number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from mtplxd.families.protocols import Target
from mtplxd.forge.pacing import Pace
from mtplxd.forge.rollout import Plan, Rng, Turns, roll
from mtplxd.forge.shards import Shard, list_shards, write_shard
from mtplxd.forge.stepping import TargetStepper

HELD_OUT_SEED = 11


@dataclass(frozen=True)
class Asker:
    """What the target is asked: drawn from a seed for training, in a list of its own to compare heads on."""

    draw: Callable[[Rng], str]
    held_out: Sequence[str]


@dataclass(frozen=True)
class RowMaker:
    """Makes shards of `rows` rows after `plan` with a target."""

    target: Target
    turns: Turns
    plan: Plan
    rows: int
    seed: int
    pace: Pace

    def make(self, folder: Path, count: int, asker: Asker) -> None:
        """The first `count` shards of a folder, those that are there already as they are."""
        plan = self.plan if self.turns.close else _free(self.plan)
        stepper = TargetStepper(self.target, self.rows)

        def make(index: int, breathe: Callable[[], None]) -> Shard:
            rng = np.random.default_rng([self.seed, index])
            return roll(stepper, self.turns, asker.draw, plan, rng, breathe)

        fill_shards(folder, range(count), make, self.pace)

    def make_held_out(self, folder: Path, asker: Asker, together: int) -> None:
        """One row a held-out question: one answer at temperature 0.6, then whatever follows when a stop is ignored.

        `together` rows at a time: a shard each.
        """
        questions = list(asker.held_out)
        plan = replace(_free(self.plan), temperatures=((0.6, 1.0),))

        def make(index: int, breathe: Callable[[], None]) -> Shard:
            part = questions[index * together : (index + 1) * together]
            rng = np.random.default_rng(HELD_OUT_SEED + index)
            return roll(TargetStepper(self.target, len(part)), self.turns, _in_turn(part), plan, rng, breathe)

        fill_shards(folder, range(-(-len(questions) // together)), make, self.pace)


def fill_shards(
    folder: Path, numbers: Iterable[int], make: Callable[[int, Callable[[], None]], Shard], pace: Pace
) -> None:
    """The shards of a folder with these numbers; those that are there already stay. `make` is told the number and what
    to call now and then, so that it can be stopped."""
    folder.mkdir(exist_ok=True)
    wanted = set(numbers)
    missing = sorted(wanted - set(list_shards(folder)))
    count, done = len(wanted), len(wanted) - len(missing)
    begin, tokens = time.monotonic(), 0
    for made, index in enumerate(missing, done):
        shard = make(index, partial(pace.breathe, "data", made, count))
        write_shard(folder, index, shard)
        tokens += shard.tokens.size
        rate = tokens / (time.monotonic() - begin)
        pace.tell("data", made + 1, count, f"{rate:.0f} tokens/s")


def _free(plan: Plan) -> Plan:
    """Questions that are asked, and nothing forced after the first answer."""
    return replace(plan, ask_first=0.0, ask_again=0.0, run_free=1.0)


def _in_turn(questions: Sequence[str]) -> Callable[[Rng], str]:
    following = chain(questions, repeat(questions[0]))
    return lambda _: next(following)
