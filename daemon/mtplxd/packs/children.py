"""Runs one child process to its end: reads its lines, and kills it with its children when cancelled."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from mtplxd.errors import Cancelled

POLL_S = 0.1
_KEPT = 200


@dataclass(frozen=True)
class Ended:
    """How a child ended: its status (negative: the signal) and the last lines it wrote to stderr."""

    status: int
    complaints: tuple[str, ...]


def run_child(
    command: Sequence[str],
    *,
    lock: int,
    cancelled: Callable[[], bool],
    on_line: Callable[[str], None] = lambda _line: None,
    on_tick: Callable[[], None] = lambda: None,
    env: dict[str, str] | None = None,
) -> Ended:
    """Runs a command in a process group of its own. `on_line` takes stdout's, `on_tick` is called often.

    The child inherits the descriptor `lock`: should this process be killed, the lock it holds outlives it
    until the child has ended. Raises Cancelled, after the group is dead.
    """
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=(lock,),
        env=env,
    )
    try:
        return _watch(child, cancelled, on_line, on_tick)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for pipe in (child.stdout, child.stderr):
            if pipe:
                pipe.close()


def _watch(
    child: subprocess.Popen[bytes],
    cancelled: Callable[[], bool],
    on_line: Callable[[str], None],
    on_tick: Callable[[], None],
) -> Ended:
    assert child.stdout is not None
    assert child.stderr is not None
    complaints: list[str] = []
    takers: dict[IO[bytes], _Lines] = {child.stdout: _Lines(on_line), child.stderr: _Lines(complaints.append)}
    with selectors.DefaultSelector() as selector:
        for pipe in takers:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            if cancelled():
                raise Cancelled(
                    "stopped before it was done", child.args[0] if isinstance(child.args, list) else None
                )
            for key, _ in selector.select(POLL_S):
                data = os.read(key.fd, 65536)
                takers[key.fileobj].take(data)  # type: ignore[index]
                if not data:
                    selector.unregister(key.fileobj)
            on_tick()
            del complaints[:-_KEPT]
    return Ended(child.wait(), tuple(complaints))


class _Lines:
    """Cuts a stream of bytes into lines; an empty read ends it."""

    def __init__(self, taker: Callable[[str], None]) -> None:
        self._taker, self._rest = taker, b""

    def take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._taker(line.decode("utf-8", "replace").rstrip("\r"))
