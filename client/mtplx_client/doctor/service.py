"""The job that keeps the daemon on, and how its last starts went."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from mtplx_launchd.service import NOT_INSTALLED, STOPPED, Service, Standing, this_backend
from mtplxd.starts import FAILURE_NAME, Record, is_looping, read_record

from mtplx_client.doctor.situation import Situation
from mtplx_client.doctor.verdicts import Check

_LEAVE_OUT = (
    "see `mtplx service logs`; `mtplx config set preload none` and `mtplx service restart` leave models out"
)


def check_service(situation: Situation) -> Iterator[Check]:
    """What launchd or systemd says of the job."""
    backend = this_backend()
    found = Service(situation.home, backend).look()
    yield judge_service(found, backend.name, Path(found.interpreter or "/").exists())


def judge_service(found: Standing, system: str, interpreter_exists: bool) -> Check:
    """Not installed and stopped are choices; a job that cannot start or is not what its file says is wrong."""
    if found.state == NOT_INSTALLED:
        return Check("service", True, "not installed: `mtplx service install` starts the daemon at login")
    if not interpreter_exists:
        detail = f"{found.path} runs {found.interpreter}, which is gone"
        return Check("service", False, detail, "`mtplx service install`")
    if found.edited:
        return Check("service", False, f"{found.path} is not what was loaded", "`mtplx service restart`")
    if found.state == "waiting" and found.last_exit not in (None, "0"):
        return Check("service", False, f"ended with {found.last_exit}, waits for its next start", _LEAVE_OUT)
    if found.state == STOPPED:
        return Check("service", True, "stopped until the next login: `mtplx service start`")
    process = f", pid {found.pid}" if found.pid else ""
    return Check("service", True, f"{found.state}{process}, {found.where} of {system}")


def check_starts(situation: Situation) -> Iterator[Check]:
    """The record of starts, and the log of the last one that failed."""
    failure = situation.home.logs / FAILURE_NAME
    try:
        said, at = (
            failure.read_text(encoding="utf-8", errors="replace").splitlines()[:1],
            failure.stat().st_mtime,
        )
    except OSError:
        said, at = [], 0.0
    yield judge_starts(read_record(situation.home), said[0] if said else "", at, str(failure), time.time())


def judge_starts(record: Record, said: str, at: float, failure: str, now: float) -> Check:
    """`said` and `at` are the last failure's first line and time. It is wrong until a start after it came up."""
    if is_looping(record.crashes, now):
        detail = (
            f"{len(record.crashes)} crashes within 5 minutes, so nothing is preloaded; {said} ({failure})"
        )
        return Check("starts", False, detail, _LEAVE_OUT)
    if not said:
        return Check("starts", True, "none failed")
    came_up = record.last is not None and record.last.ready >= at
    return Check(
        "starts", came_up, f"the last that failed: {said} ({failure})", "see that file, then start it again"
    )
