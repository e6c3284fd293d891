"""systemd: one user unit, driven through `systemctl --user`. Owns the order of its verbs, and the words for a machine
where no user systemd runs.
"""

from __future__ import annotations

import os
from pathlib import Path

from mtplxd.errors import FailedPrecondition, Unavailable
from mtplxd.paths import absolute

from mtplx_launchd.backend import Found, State
from mtplx_launchd.job import Job
from mtplx_launchd.tools import Said, run_tool
from mtplx_launchd.unit import read_unit_arguments, render_unit

SYSTEMCTL = Path("/usr/bin/systemctl")
_SHOWN = "LoadState,ActiveState,SubState,MainPID,ExecMainCode,ExecMainStatus"
_STATES: dict[str, State] = {
    "active": "running",
    "reloading": "running",
    "activating": "waiting",
    "deactivating": "stopping",
}
_KILLED = ("2", "3")
"""ExecMainCode of a process that a signal ended, without and with a core file (CLD_KILLED, CLD_DUMPED)."""


class Systemd:
    """The user's own systemd. `tool` and `units` are where systemctl and the user's units are."""

    name = "systemd"

    def __init__(self, tool: Path = SYSTEMCTL, units: Path | None = None) -> None:
        self._tool = tool
        base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
        self._units = absolute(Path(base, "systemd", "user")) if units is None else units

    def check(self) -> None:
        fix = "run `mtplxd` in the foreground, or log in with a user session (`loginctl enable-linger`)"
        if not self._tool.exists():
            raise FailedPrecondition("no systemd on this machine", self._tool, fix)
        said = self._ask("show", "--property=Version")
        if said.code != 0:
            raise FailedPrecondition("no user systemd runs here", said.words, fix)

    def place(self) -> str:
        return "user"

    def why(self) -> str:
        return "the user's systemd; it ends at logout unless `loginctl enable-linger` was said"

    def path(self, label: str) -> Path:
        return self._units / _unit(label)

    def render(self, job: Job) -> bytes:
        return render_unit(job)

    def arguments(self, written: bytes) -> list[str]:
        return read_unit_arguments(written)

    def look(self, label: str) -> Found:
        said = self._ask("show", _unit(label), f"--property={_SHOWN}")
        facts = dict(line.partition("=")[::2] for line in said.out.splitlines())
        if said.code != 0 or facts.get("LoadState") != "loaded":
            return Found("not loaded")
        state = _STATES.get(facts.get("ActiveState", ""), "not loaded")
        if facts.get("SubState") == "auto-restart":
            state = "waiting"
        pid = int(facts.get("MainPID") or 0) or None
        return Found(state, pid, _last_exit(facts), self.place())

    def load(self, label: str) -> None:
        self._do("daemon-reload")
        self._do("enable", _unit(label))
        self._do("start", _unit(label))

    def wake(self, label: str) -> None:
        self._do("start", _unit(label))

    def unload(self, label: str, patience_s: float) -> None:
        del patience_s  # the unit's TimeoutStopSec bounds it, and `stop` waits
        if self.look(label).loaded:
            self._do("stop", _unit(label))
        self._ask("reset-failed", _unit(label))

    def forget(self, label: str) -> None:
        self._ask("disable", _unit(label))
        self._do("daemon-reload")

    def _do(self, *words: str) -> None:
        said = self._ask(*words)
        if said.code != 0:
            raise Unavailable(
                "systemd refuses", f"{' '.join(words)}: {said.words}", "see `journalctl --user`"
            )

    def _ask(self, *words: str) -> Said:
        return run_tool([str(self._tool), "--user", *words])


def _unit(label: str) -> str:
    """`mtplxd.service`, or `mtplxd-1a2b3c4d.service` for a home of its own."""
    own = label.removeprefix("org.mtplxd.").replace(".", "-")
    return f"{own}.service"


def _last_exit(facts: dict[str, str]) -> str | None:
    if facts.get("ExecMainCode", "0") == "0":
        return None
    status = facts.get("ExecMainStatus", "")
    return f"signal {status}" if facts["ExecMainCode"] in _KILLED else status
