"""Keeps the fan helper running as its job does: a helper that dies is started again some seconds later."""

from __future__ import annotations

import threading
import time

from support.fand import Fand

POLL_S = 0.02


class Supervisor:
    """Starts a helper and, until `close`, starts it again `delay_s` after each death. `deaths` are their moments."""

    def __init__(self, helper: Fand, delay_s: float) -> None:
        self._helper, self._delay_s = helper, delay_s
        self._closing = threading.Event()
        self.deaths: list[float] = []
        helper.start()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def kill(self) -> float:
        """kill -9 of the helper that runs, if one does; the moment of it."""
        process = self._helper.process
        assert process is not None
        process.kill()
        return time.monotonic()

    def close(self) -> None:
        """Ends the helper for good."""
        self._closing.set()
        self._thread.join()
        self._helper.kill()

    def _watch(self) -> None:
        while not self._closing.wait(POLL_S):
            process = self._helper.process
            assert process is not None
            if process.poll() is None:
                continue
            self.deaths.append(time.monotonic())
            if self._closing.wait(self._delay_s):
                return
            self._helper.spawn()
