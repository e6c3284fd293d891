"""How long a tuning takes: prompts, depths, and as many tokens an answer as fit its time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtplxd.errors import FailedPrecondition, InvalidArgument
from mtplxd.tune.plan import AUTO, DEFAULT_DEEPEST, WARM_TOKENS, settle_depths, settle_tokens

LEAST_PROMPTS = 8
"""Fewer prompts decide nothing."""
CHECKS = 3
"""Answers beside the pairs that tell of the machine's drift."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds that answers may take in all if drafting sped nothing up, and the tokens of each at least and most."""

    seconds: float
    least: int
    most: int


FULL, QUICK = Effort(260.0, 32, 256), Effort(80.0, 16, 64)


def settle_prompts(wanted: int) -> int:
    """How many prompts, 0 meaning the least. Raises InvalidArgument below it."""
    count = wanted or LEAST_PROMPTS
    if count < LEAST_PROMPTS:
        raise InvalidArgument(
            "too few prompts to decide by", wanted, f"give at least {LEAST_PROMPTS}", field="prompts"
        )
    return count


def settle_candidates(
    wanted: Sequence[int], depth_max: int, *, auto: bool, quick: bool, name: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Plain decoding and the depths to compare with it, `auto` last, and a sentence for each that was clipped.

    Without a wish: 1 to 3 as far as the head reaches, and `auto`, which a quick run leaves out. Raises
    FailedPrecondition where there is no head, InvalidArgument where nothing but plain decoding was asked for.
    """
    if depth_max == 0:
        raise FailedPrecondition(
            "there is no head to tune", name, "load it without --plain, or see `mtplx inspect`"
        )
    if not wanted and not auto:
        deepest = min(DEFAULT_DEEPEST, depth_max)
        return (0, *range(1, deepest + 1), *(() if quick else (AUTO,))), ()
    depths, notes = settle_depths([0, *wanted], depth_max, auto=auto)
    if depths == (0,):
        raise InvalidArgument(
            "plain decoding alone leaves nothing to choose", 0, "name a depth of 1 or more", field="depths"
        )
    return depths, notes


def choose_tokens(wanted: int, effort: Effort, answers: int, prefill_s: float, tok_s: float) -> int:
    """Tokens of each answer: what was asked for, else as many as fit.

    `answers` are all that will be made, each after `prefill_s`; `tok_s` is plain decoding's speed. Raises
    InvalidArgument below two tokens.
    """
    if wanted:
        return settle_tokens(wanted)
    fit = (effort.seconds / answers - prefill_s) * tok_s
    return int(min(max(fit, effort.least), effort.most))


def count_answers(prompts: int, depths: int) -> int:
    """Answers of full length: the pairs, the checks, and the one that the chooser of depths learns from."""
    return prompts * depths + CHECKS + 1


def longest_answer(wanted: int, effort: Effort) -> int:
    """Tokens that an answer may come to, known before anything is measured."""
    return max(settle_tokens(wanted) if wanted else effort.most, WARM_TOKENS)
