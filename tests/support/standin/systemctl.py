"""What `systemctl --user` says and ends with, verb by verb.

| when | exit | words | source |
|---|---|---|---|
| no user manager | 1 | Failed to connect to bus: No medium found | systemd 252 in a container, tried |
| show, no such unit | 0 | LoadState=not-found | systemctl(1), tried |
| start, no such unit | 5 | Failed to start U: Unit U not found. | systemctl(1) EXIT STATUS |
| stop, reset-failed, not loaded | 5, 1 | Failed to stop U: Unit U not loaded. | the same |
| enable, no such file | 1 | Failed to enable unit: Unit file U does not exist. | systemd 252 |
| enable | 0 | Created symlink L → F. | systemd 252, tried |
| start, stop | 0 | return when it has started, when it has ended | systemctl(1) --no-block |
| a changed file | – | nothing before daemon-reload and a restart | systemctl(1) daemon-reload |
"""

from __future__ import annotations

from pathlib import Path

from support.standin.running import Running
from support.standin.spec import JobSpec, Unreadable
from support.standin.supervisor import Answer, Later, Supervisor
from support.standin.unit_spec import read_unit_spec

DOMAIN = "systemd"
WANTS = "default.target.wants"
_NO_BUS = "Failed to connect to bus: No medium found\n"


def answer(boss: Supervisor, words: list[str]) -> Answer | Later:
    """One command line of systemctl."""
    flags = [word for word in words if word.startswith("-")]
    verb, *units = [word for word in words if not word.startswith("-")] or [""]
    if "--user" not in flags:
        return Answer(1, err="the stand-in is a user's systemd alone\n")
    if DOMAIN not in boss.domains:
        return Answer(1, err=_NO_BUS)
    verbs = {
        "show": _show, "daemon-reload": _reload, "enable": _enable, "disable": _disable, "start": _start,
        "stop": _stop, "reset-failed": _reset,
    }  # fmt: skip
    if verb not in verbs:
        return Answer(1, err=f"Unknown command verb {verb}.\n")
    return verbs[verb](boss, units[0] if units else "")


def start_all(boss: Supervisor) -> None:
    """What the user's systemd does when it begins: all that default.target wants."""
    _reload(boss, "")
    for link in sorted((boss.units / WANTS).glob("*.service")):
        _start(boss, link.name)


def _show(boss: Supervisor, unit: str) -> Answer:
    if not unit:
        return Answer(0, out="Version=252\n")
    job = boss.jobs.get((DOMAIN, unit))
    loaded = job is not None or unit in boss.definitions
    facts = {"LoadState": "loaded" if loaded else "not-found", **_activity(job)}
    return Answer(0, out="".join(f"{name}={value}\n" for name, value in facts.items()))


def _activity(job: Running | None) -> dict[str, object]:
    active, sub, code, status = "inactive", "dead", 0, 0
    if job is not None and job.last_code is not None:
        code, status = (2, -job.last_code) if job.last_code < 0 else (1, job.last_code)
    if job is not None and job.told:
        active, sub = "deactivating", "stop-sigterm"
    elif job is not None and job.process is not None:
        active, sub = "active", "running"
    elif job is not None and job.due is not None:
        active, sub = "activating", "auto-restart"
    pid = 0 if job is None else job.pid or 0
    return {
        "ActiveState": active,
        "SubState": sub,
        "MainPID": pid,
        "ExecMainCode": code,
        "ExecMainStatus": status,
    }


def _reload(boss: Supervisor, unit: str) -> Answer:
    del unit
    boss.definitions.clear()
    for path in sorted(boss.units.glob("*.service")):
        try:
            boss.definitions[path.name] = read_unit_spec(path)
        except (Unreadable, KeyError, ValueError) as error:
            return Answer(1, err=f"{path.name}: {error}\n")
    return Answer(0)


def _enable(boss: Supervisor, unit: str) -> Answer:
    path, link = boss.units / unit, boss.units / WANTS / unit
    if not path.exists():
        return Answer(1, err=f"Failed to enable unit: Unit file {unit} does not exist.\n")
    if link.is_symlink():
        return Answer(0)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(path)
    return Answer(0, err=f"Created symlink {link} → {path}.\n")


def _disable(boss: Supervisor, unit: str) -> Answer:
    (boss.units / WANTS / unit).unlink(missing_ok=True)
    return Answer(0)


def _start(boss: Supervisor, unit: str) -> Answer | Later:
    spec = _definition(boss, unit)
    if spec is None:
        return Answer(5, err=f"Failed to start {unit}: Unit {unit} not found.\n")
    key = (DOMAIN, unit)
    job = boss.jobs.get(key)
    if job is None or job.process is None:
        job = boss.add(key, spec)
        job.due = boss.now
    return Later(lambda: Answer(0) if job.process is not None or job.runs else None)


def _stop(boss: Supervisor, unit: str) -> Answer | Later:
    key = (DOMAIN, unit)
    job = boss.jobs.get(key)
    if job is None:
        known = unit in boss.definitions
        return Answer(0) if known else Answer(5, err=f"Failed to stop {unit}: Unit {unit} not loaded.\n")
    job.end(boss.now)
    return Later(lambda: Answer(0) if key not in boss.jobs else None)


def _reset(boss: Supervisor, unit: str) -> Answer:
    if unit in boss.definitions:
        return Answer(0)
    return Answer(1, err=f"Failed to reset failed state of unit {unit}: Unit {unit} not loaded.\n")


def _definition(boss: Supervisor, unit: str) -> JobSpec | None:
    """What was read last; a file that is new is read at once, one that changed is not."""
    if unit not in boss.definitions and Path(boss.units / unit).exists():
        boss.definitions[unit] = read_unit_spec(boss.units / unit)
    return boss.definitions.get(unit)
