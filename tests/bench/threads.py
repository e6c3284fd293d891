"""CPU time of a process's threads, from /proc. Tells who works for the engine; Linux only."""

from __future__ import annotations

from pathlib import Path

Spent = dict[int, float]
"""Seconds on a CPU by thread id."""

ENGINE_SHARE = 0.1
"""Of the busiest thread's time while nothing but decoding goes on: the engine's own threads (its thread, MLX's
streams, the BLAS) are far above, all others far below."""


def read_threads(pid: int) -> Spent:
    """Empty where the system does not tell."""
    spent: Spent = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            spent[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
        except (OSError, ValueError, IndexError):
            continue
    return spent


def difference(after: Spent, before: Spent) -> Spent:
    """What was spent in between; threads that ended meanwhile are lost."""
    return {thread: seconds - before.get(thread, 0.0) for thread, seconds in after.items()}


def find_engine(spent: Spent) -> set[int]:
    """The threads that decoding alone keeps busy."""
    most = max(spent.values(), default=0.0)
    return {thread for thread, seconds in spent.items() if seconds > ENGINE_SHARE * most}


def peak_rss(pid: int) -> int:
    """Largest resident size so far in bytes; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
