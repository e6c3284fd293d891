"""Which answers a measurement makes, and in which order. Pure: no clock, no model.

Prompt by prompt, every depth in turn with the prompt's one seed; each prompt begins with another depth, so that none
always runs on the cooler machine. Before all that each depth answers once untimed, so that no timed answer pays for a
new shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtplxd.errors import InvalidArgument
from mtplxd.tune.prompts import Prompt

WARM_TOKENS = 16
DEFAULT_TOKENS = 128
DEFAULT_DEEPEST = 3
LEAST_TOKENS = 2
"""A speed needs a first and a last token."""
AUTO = -1
"""Stands where a depth would: it is chosen round by round, as the text goes."""


@dataclass(frozen=True, slots=True)
class Step:
    """One answer to make. What is not `timed` warms a shape and is thrown away."""

    prompt: int
    depth: int
    seed: int
    tokens: int
    timed: bool = True

    @property
    def name(self) -> str:
        """prompt:depth, as the result's order lists it."""
        return name_of(self.prompt, self.depth)


def name_of(prompt: int, depth: int) -> str:
    """How an answer is called: its prompt's index, and its depth or `auto`."""
    return f"{prompt}:{'auto' if depth == AUTO else depth}"


def settle_tokens(wanted: int) -> int:
    """Tokens of each answer, 0 meaning the default. Raises InvalidArgument below two."""
    tokens = wanted or DEFAULT_TOKENS
    if tokens < LEAST_TOKENS:
        fix = f"give at least {LEAST_TOKENS}, a speed needs a first and a last token"
        raise InvalidArgument("too few tokens to measure", wanted, fix, field="max_tokens")
    return tokens


def settle_depths(
    wanted: Sequence[int], depth_max: int, *, auto: bool = False
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The depths to measure, without repeats and within the head's limit, and a sentence for each that was clipped.

    `depth_max` 0 means that there is no head. Without a wish: 0 to 3, as far as the head reaches. AUTO, where it is
    asked for and there is a head to choose for, comes last.
    """
    chosen = (AUTO,) if auto and depth_max else ()
    missing = ("auto left out: the model is loaded without a head",) if auto and not depth_max else ()
    if auto and not wanted:
        return chosen or (0,), missing
    if not wanted:
        return tuple(range(min(DEFAULT_DEEPEST, depth_max) + 1)), ()
    limit = f"the head's limit is {depth_max}" if depth_max else "the model is loaded without a head"
    notes = tuple(
        f"depth {depth} clipped to {depth_max}: {limit}"
        for depth in dict.fromkeys(wanted)
        if depth > depth_max
    )
    depths = tuple(dict.fromkeys(min(depth, depth_max) for depth in wanted))
    return depths + chosen, notes + missing


def plan_steps(prompts: Sequence[Prompt], depths: Sequence[int], tokens: int) -> list[Step]:
    """Every answer in order: each depth once untimed on the first prompt, then all prompts at all depths.

    Where depths are chosen, the chooser gets an answer as long as a timed one to learn from.
    """
    first = prompts[0]
    warm = [
        Step(first.index, depth, first.seed, tokens if depth == AUTO else min(tokens, WARM_TOKENS), False)
        for depth in depths
    ]
    return warm + [
        Step(prompt.index, depth, prompt.seed, tokens)
        for turn, prompt in enumerate(prompts)
        for depth in _rotate(depths, turn)
    ]


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """Every answer in order, and which of the timed ones (by place) tell of the machine's drift and are in no pair."""

    steps: tuple[Step, ...]
    checks: tuple[int, ...]


def plan_tuning(prompts: Sequence[Prompt], depths: Sequence[int], tokens: int) -> TuningPlan:
    """As `plan_steps`, with the first prompt decoded plainly once more at the start, the middle and the end."""
    steps = plan_steps(prompts, depths, tokens)
    warm, paired = steps[: len(depths)], steps[len(depths) :]
    check = Step(prompts[0].index, 0, prompts[0].seed, tokens)
    half = (len(prompts) + 1) // 2 * len(depths)
    timed = [check, *paired[:half], check, *paired[half:], check]
    return TuningPlan((*warm, *timed), (0, half + 1, len(timed) - 1))


def _rotate(depths: Sequence[int], turn: int) -> tuple[int, ...]:
    begin = turn % len(depths)
    return (*depths[begin:], *depths[:begin])
