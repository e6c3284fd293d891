"""The rows of a tuning, from timed answers: `summary`'s, each with the interval of its ratio. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtplxd.engine.depth.controller import STATE_VERSION
from mtplxd.tune.decision import TuneRow
from mtplxd.tune.intervals import compare
from mtplxd.tune.plan import AUTO
from mtplxd.tune.summary import Row, Run, speeds_by_prompt, sum_counts, summarise


def tune_rows(runs: Sequence[Run]) -> tuple[TuneRow, ...]:
    """All depths, shallowest first, the chosen one last. Prompts that a depth did not time are in no pair."""
    plain = speeds_by_prompt(run for run in runs if run.depth == 0)
    return tuple(_row(row, [run for run in runs if run.depth == row.depth], plain) for row in summarise(runs))


def _row(row: Row, runs: Sequence[Run], plain: dict[int, float]) -> TuneRow:
    speeds = speeds_by_prompt(runs)
    reached, passed = _reached(runs)
    return TuneRow(
        depth=row.depth,
        tok_s=row.tok_s,
        interval=compare(speeds, plain),
        tokens_per_round=row.tokens_per_round,
        acceptance_by_position=row.acceptance_by_position,
        round_ms=row.round_ms,
        rounds=row.rounds,
        speeds=speeds,
        reached=reached,
        passed=passed,
    )


def _reached(runs: Sequence[Run]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """By position: how often it was judged after all before it were accepted, and accepted."""
    accepted = sum_counts(run.stats.accepted_by_position for run in runs)
    judged = sum_counts(run.stats.judged_by_position for run in runs)
    reached = [*judged[:1], *accepted[:-1]]
    return tuple(map(min, reached, judged)), tuple(accepted)


def curve_of(rows: Sequence[TuneRow]) -> dict[str, Any]:
    """What the fixed depths teach, as the state of a depth controller: acceptance by position, seconds of a round."""
    fixed = [row for row in rows if row.depth != AUTO]
    drafting = [row for row in fixed if row.depth]
    return {
        "version": STATE_VERSION,
        "acceptance": {
            "reached": [float(count) for count in sum_counts(row.reached for row in drafting)],
            "passed": [float(count) for count in sum_counts(row.passed for row in drafting)],
        },
        "seconds": {"": [[1, row.depth, row.round_ms / 1e3] for row in fixed if row.round_ms > 0]},
    }
