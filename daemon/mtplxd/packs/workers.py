"""Runs a module of ours in a process of its own and hears what it says, line by line, in JSON.

A worker's memory, its imports and its threads go with it; its error comes back with the type it had there.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from mtplxd import errors as typed
from mtplxd.errors import MtplxError, ResourceExhausted
from mtplxd.packs.children import run_child

Message = dict[str, Any]
_WATCH_S = 0.25
_OWN = ("needed", "available", "field")
"""What some kinds of errors have beside their words."""
_KINDS = (
    typed.InvalidArgument,
    typed.NotFound,
    typed.FailedPrecondition,
    typed.UnsupportedSource,
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
            f"{what} was killed", f"signal {-ended.status}", "free some memory and try again"
        )
    if ended.status:
        last = ended.complaints[-1] if ended.complaints else f"status {ended.status}"
        raise typed.Internal(f"{what} failed", last, "this is a fault of mtplxd, please report it")


def end_with_parent() -> None:
    """From now on this process ends, whatever it does, once whoever started it is gone."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)


def say(message: Message) -> None:
    """A worker's line to whoever started it. Raises BrokenPipeError when nobody is there any more."""
    print(json.dumps(message), flush=True)


def say_error(error: MtplxError) -> None:
    """A worker's last line: why it gives up."""
    parts = {"what": error.what, "value": None if error.value is None else str(error.value), "fix": error.fix}
    own = {name: getattr(error, name) for name in _OWN if hasattr(error, name)}
    known = next((kind for kind in type(error).__mro__ if kind in _KINDS), typed.Internal)
    say({"error": {"kind": known.__name__, "code": error.code, **parts, **own}})


def _as_typed(said: Message) -> MtplxError:
    """The worker's error, of the type it had there."""
    kinds: dict[str, type[MtplxError]] = {kind.__name__: kind for kind in _KINDS}
    kind = kinds.get(str(said.get("kind")), typed.Internal)
    own = {name: said[name] for name in _OWN if name in said}
    return kind(str(said.get("what")), said.get("value"), str(said.get("fix", "")), **own)
