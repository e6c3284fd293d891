"""`python -m support.steady_daemon`: the daemon, whose measured rounds take a fixed time, whatever the machine does.

All else is real: texts, rounds, tokens of each round. So a test of what follows from a win needs no luck.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from mtplxd.__main__ import main
from mtplxd.tune.inprocess import EngineRunner

ROUND_S, DRAFT_S = 0.010, 0.001
"""A round without drafts, and what each draft adds; about what a large model's forwards take beside each other."""

_answer = EngineRunner.answer


def _answer_steadily(self: EngineRunner, step, poll):  # type: ignore[no-untyped-def]
    run = _answer(self, step, poll)
    round_s = ROUND_S + DRAFT_S * run.depth
    return replace(run, last_s=run.first_s + (run.stats.rounds - 1) * round_s, round_ms=1e3 * round_s)


if __name__ == "__main__":
    EngineRunner.answer = _answer_steadily  # type: ignore[method-assign]
    sys.exit(main())
