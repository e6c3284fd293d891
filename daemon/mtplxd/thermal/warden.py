"""Holds the fans' lease for the daemon: asks the policy, renews, gives back, and tells how it stands.

One thread of its own, so that neither the event loop nor the engine ever waits for the helper. While fans are the
system's and nobody measures it sleeps. What fans do is the helper's; a daemon that dies has given them back by dying.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mtplxd.platform.thermal import Thermal, read_pressure
from mtplxd.thermal.helper import PATIENCE_S, Held, Helper, HelperGone, HelperRefused
from mtplxd.thermal.policy import Mode, Policy, Wish, Work
from mtplxd.thermal.rivals import find_rival

log = logging.getLogger(__name__)

RENEWALS = 3
"""Renewals in the time of one lease: two may be late."""
LOOK_S = 1.0
"""How often work is looked at where the mode depends on it."""
AGAIN_S = 5.0
"""Until a helper that did not answer or refused is asked again."""
FRESH_S = 5.0
"""What is told of a helper is not older than this for whoever asks again."""


@dataclass(frozen=True)
class View:
    """How it stands. `helper`: ready, not-installed, unreachable, refused, yielded (another tool has the fans); `fault`
    says why in the latter three.

    `held` is what the helper told last, None without one; `leased` whether we hold a lease, for `reason`.
    """

    mode: Mode
    helper: str = "unknown"
    fault: str = ""
    held: Held | None = None
    leased: bool = False
    reason: str = ""

    @property
    def label(self) -> str:
        """The fan mode of a measurement made now, in one word."""
        if self.helper != "ready" or self.held is None:
            return "not-available" if self.helper in ("not-installed", "unknown") else self.helper
        return self.held.state


class Warden:
    """`work` tells of the engine, from any thread. Made and closed by the daemon."""

    def __init__(
        self,
        socket: Path,
        mode: Mode,
        lease_s: float,
        work: Callable[[], Work],
        heat: Callable[[], Thermal] = read_pressure,
        clock: Callable[[], float] = time.monotonic,
        rival: Callable[[], str] = find_rival,
    ) -> None:
        self._rival = rival
        self._helper = Helper(socket, min(PATIENCE_S, lease_s))
        self._policy, self._lease_s = Policy(mode), lease_s
        self._work, self._heat, self._clock = work, heat, clock
        self._changed = threading.Condition()
        self._claims: dict[int, str] = {}
        self._count, self._asked_to_look, self._looked, self._closing = 0, True, 0.0, False
        self._again_at = 0.0
        self._view = View(mode)
        self._thread = threading.Thread(target=self._run, name="fans", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, patience_s: float = 5.0) -> None:
        """Gives the lease back and ends the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def view(self) -> View:
        """How it stood a moment ago; a picture that has grown old is made anew meanwhile. Never waits."""
        if self._clock() - self._looked > FRESH_S:
            self._nudge()
        return self._view

    def look(self, patience_s: float = 2 * PATIENCE_S) -> View:
        """How it stands now; waits for the helper, so never on an event loop."""
        with self._changed:
            before = self._looked
            self._asked_to_look = True
            self._again_at = 0.0
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._looked > before or self._closing, patience_s)
        return self._view

    def set_mode(self, mode: Mode) -> None:
        """From now on, until the daemon ends."""
        with self._changed:
            self._policy.mode = mode
        self.look()

    @contextmanager
    def hold(self, reason: str, *, wanted: bool = True) -> Iterator[None]:
        """Fans are held while the block runs, as far as a helper is there; without `wanted` nothing changes. Never
        waits and never fails: a measurement is labelled, not refused.
        """
        if not wanted:
            yield
            return
        number = self._claim(reason)
        try:
            yield
        finally:
            with self._changed:
                del self._claims[number]
                self._changed.notify_all()

    def _claim(self, reason: str) -> int:
        with self._changed:
            self._count += 1
            self._claims[self._count] = reason
            self._again_at = 0.0
            self._changed.notify_all()
            return self._count

    def _nudge(self) -> None:
        with self._changed:
            if not self._asked_to_look:
                self._asked_to_look = True
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._due, self._patience())
                if self._closing:
                    break
                mode, claims, asked = self._policy.mode, tuple(self._claims.values()), self._asked_to_look
                self._asked_to_look = False
            try:
                self._turn(mode, claims, asked=asked)
            except Exception:  # fans must not end with a fault in what is told of them
                log.exception("the fans' lease")
                self._again_at = self._clock() + AGAIN_S
        self._helper.release()

    def _due(self) -> bool:
        """Whether something has changed that cannot wait for its turn."""
        return self._closing or self._asked_to_look or bool(self._claims) != self._claimed

    def _patience(self) -> float | None:
        """Seconds until the next turn, None where only a change brings one."""
        if self._view.leased:
            return min(self._lease_s / RENEWALS, LOOK_S)
        if self._policy.mode == "auto" and not self._claims:
            return None
        return max(LOOK_S, self._again_at - self._clock())

    _claimed = False

    def _turn(self, mode: Mode, claims: tuple[str, ...], *, asked: bool) -> None:
        self._claimed = bool(claims)
        wish = self._policy.decide(self._work(), claims, self._heat(), self._clock())
        if wish.hold and self._clock() >= self._again_at:
            self._renew(mode, wish)
        elif self._view.leased and not wish.hold:
            self._helper.release()
            log.info("fans are given back: %s", wish.reason or "nothing needs them")
            self._tell(mode, wish, leased=False)
        elif asked or mode != self._view.mode:
            self._tell(mode, wish, leased=self._view.leased and self._helper.connected)

    def _renew(self, mode: Mode, wish: Wish) -> None:
        before = self._view.leased
        if rival := self._rival():
            self._yield(mode, rival)
            return
        try:
            self._helper.hold(self._lease_s)
        except (HelperGone, HelperRefused) as error:
            self._fail(mode, wish, error)
            return
        if not before:
            log.info("fans are held: %s", wish.reason)
        self._tell(mode, wish, leased=True)

    def _yield(self, mode: Mode, rival: str) -> None:
        """Leaves the fans to another tool, and asks again later whether it is still there."""
        self._helper.release()
        self._again_at = self._clock() + AGAIN_S
        if self._view.helper != "yielded":
            log.warning("fans are left to another tool: %s", rival)
        self._show(View(mode, "yielded", f"{rival}: fans are left to it"))

    def _tell(self, mode: Mode, wish: Wish, *, leased: bool) -> None:
        """Asks how fans are, and makes the picture of it."""
        try:
            held = self._helper.status()
        except (HelperGone, HelperRefused) as error:
            self._fail(mode, wish, error)
            return
        if not leased:
            self._helper.close()  # a helper has few places
        self._show(View(mode, "ready", held.error, held, leased, wish.reason if leased else ""))

    def _fail(self, mode: Mode, wish: Wish, error: HelperGone | HelperRefused) -> None:
        self._helper.close()
        self._again_at = self._clock() + min(AGAIN_S, self._lease_s)
        state = "refused"
        if isinstance(error, HelperGone):
            state = "unreachable" if error.installed else "not-installed"
        if (
            wish.hold
            and state != "not-installed"
            and (state, str(error)) != (self._view.helper, self._view.fault)
        ):
            log.warning("fans cannot be held: %s", error)
        self._show(View(mode, state, str(error)))

    def _show(self, view: View) -> None:
        with self._changed:
            self._view, self._looked = view, self._clock()
            self._changed.notify_all()
