"""Starts the process that fetches a repository, and hears it: what it says becomes calls, its error an exception.

What the process does is `fetch`'s; when it ends early, so does all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mtplxd.packs.hub.names import RepositoryName
from mtplxd.packs.workers import Message, run_worker
from mtplxd.paths import HuggingFace

WORKER = "mtplxd.packs.hub.fetch"
FINISHED = "pack"
"""Name of the folder that it makes inside the one it works in."""


def fetch_apart(
    name: RepositoryName,
    work: Path,
    standing: Path,
    hugging_face: HuggingFace,
    *,
    lock: int,
    on_bytes: Callable[[int, int], None],
    cancelled: Callable[[], bool],
    on_commit: Callable[[str], None] = lambda _: None,
) -> bool:
    """Makes `work/pack` of a repository; False where `standing` already is what it would become.

    `on_bytes` takes bytes settled and bytes in all, `on_commit` the commit, before anything of it is fetched. The
    process inherits the descriptor `lock`. Raises the Hub's errors, ResourceExhausted, DataLoss, Cancelled.
    """
    made: list[bool] = []

    def take(message: Message) -> None:
        if "made" in message:
            made.append(bool(message["made"]))
        elif "commit" in message:
            on_commit(str(message["commit"]))
        else:
            on_bytes(int(message["done"]), int(message["total"]))

    run_worker(
        WORKER,
        (str(name), str(work), str(standing)),
        what="the fetching",
        lock=lock,
        on_message=take,
        cancelled=cancelled,
        env=hugging_face.environment(HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1"),
    )
    return made == [True]
