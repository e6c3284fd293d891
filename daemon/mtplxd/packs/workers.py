"""Runs a module of ours in a process of its own and hears what it says, line by line, in JSON.

A worker's memory, its imports and its threads go with it; its error comes back with the type it had there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from mtplxd import errors as typed
from mtplxd.errors import MtplxError, ResourceExhausted
from mtplxd.packs.children import run_child

Message = dict[str, Any]
_KINDS = (
    typed.InvalidArgument,
    typed.NotFound,
    typed.FailedPrecondition,
    typed.ResourceExhausted,
    typed.Unavailable,
    typed.DeadlineExceeded,
    typed.Cancelled,
    typed.DataLoss,
)


def run_worker(
    module: str,
    arguments: tuple[str, ...],
    *,
    what: str,
    lock: int,
    on_message: Callable[[Message], None],
    cancelled: Callable[[], bool],
    env: dict[str, str] | None = None,
) -> None:
    """Runs `python -m module` to its end; `what` names its work in errors. It inherits `lock`, and without `env` the
    environment.

    Raises what the worker says, Cancelled, ResourceExhausted where the system killed it, Internal.
    """
    said: list[Message] = []

    def take(line: str) -> None:
        message = json.loads(line) if line.startswith("{") else {}
        if "error" in message:
            said.append(message["error"])
        elif message:
            on_message(message)

    ended = run_child(
        [sys.executable, "-m", module, *arguments], lock=lock, cancelled=cancelled, on_line=take, env=env
    )
    if said:
        raise _as_typed(said[-1])
    if ended.status < 0:
        raise ResourceExhausted(
            f"{what} was killed", f"signal {-ended.status}", "free some memory and pull again"
        )
    if ended.status:
        last = ended.complaints[-1] if ended.complaints else f"status {ended.status}"
        raise typed.Internal(f"{what} failed", last, "this is a fault of mtplxd, please report it")


def say(message: Message) -> None:
    """A worker's line to whoever started it. Raises BrokenPipeError when nobody is there any more."""
    print(json.dumps(message), flush=True)


def say_error(error: MtplxError) -> None:
    """A worker's last line: why it gives up."""
    parts = {"what": error.what, "value": None if error.value is None else str(error.value), "fix": error.fix}
    sizes = {name: getattr(error, name) for name in ("needed", "available") if hasattr(error, name)}
    say({"error": {"code": error.code, **parts, **sizes}})


def _as_typed(said: Message) -> MtplxError:
    """The worker's error, of the type it had there."""
    kind: type[MtplxError] = {kind.code: kind for kind in _KINDS}.get(str(said.get("code")), typed.Internal)
    sizes = {name: said[name] for name in ("needed", "available") if name in said}
    return kind(str(said.get("what")), said.get("value"), str(said.get("fix", "")), **sizes)
