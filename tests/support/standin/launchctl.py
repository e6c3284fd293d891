"""What launchctl says and ends with, verb by verb, for the domains gui/UID and user/UID.

| when | exit | words | source |
|---|---|---|---|
| print, no such service | 113 | Could not find service "L" in domain for … | headroomlabs-ai/headroom#1289 |
| print, no such domain | 125 | Could not print domain: 125: Domain does not … | duh17/oppi#38 |
| bootstrap, no such domain | 125 | Bootstrap failed: 125: Domain does not … | nix-community/home-manager#4413 |
| bootstrap, label loaded or ending | 5 | Bootstrap failed: 5: Input/output error | openclaw/openclaw#136453 |
| bootstrap, bad or missing file | 5 | the same | pirj/noclamshell#25 |
| bootstrap, another session type | 134 | Service cannot load in requested session | duh17/oppi#31 |
| bootstrap, disabled | 119 | Service is disabled | `launchctl error 119` |
| bootout, not loaded | 3 | Boot-out failed: 3: No such process | DeterminateSystems/nix-installer#1148 |
| bootout, loaded | 0 | returns while the process is still ending | pingdotgg/t3code#7874 |
| print meanwhile | 0 | state = SIGTERMed | kxn/codex-remote-feishu#916 |
| kickstart, not loaded | 113 | as print | headroomlabs-ai/headroom#1289 |
| any other use | 64 | Unrecognized subcommand, or Usage | pingdotgg/t3code#11995 |
"""

from __future__ import annotations

from pathlib import Path

from support.standin.plist_spec import read_plist_spec
from support.standin.running import Running
from support.standin.spec import Unreadable
from support.standin.supervisor import Answer, Supervisor

SETTLE_S = 1.0
"""How long a label stays taken after its process is gone, before the factor."""
_SESSION = {"gui": "Aqua", "user": "Background"}
_EIO = "Bootstrap failed: 5: Input/output error\nTry re-running the command as root for richer errors.\n"
_NO_DOMAIN = "125: Domain does not support specified action\n"


def answer(boss: Supervisor, words: list[str]) -> Answer:
    """One command line of launchctl."""
    verb, *rest = words or [""]
    verbs = {
        "print": _print, "bootstrap": _bootstrap, "bootout": _bootout, "kickstart": _kickstart,
        "enable": _enable, "disable": _disable, "print-disabled": _print_disabled,
    }  # fmt: skip
    if verb not in verbs:
        return Answer(64, err=f"Unrecognized subcommand: {verb}\n")
    flags = [word for word in rest if word.startswith("-")]
    targets = [word for word in rest if not word.startswith("-")]
    if not targets or (flags and verb != "kickstart"):
        return Answer(64, err=f"Usage: launchctl {verb} <target>\n")
    return verbs[verb](boss, targets, flags)


def load_all(boss: Supervisor, domain: str, agents: Path) -> None:
    """What launchd does at login: every agent of that session that nobody disabled. The session is a new one: what
    another's jobs left behind as they ended does not hold it up."""
    for key in [key for key in boss.free_at if key[0] == domain]:
        del boss.free_at[key]
    for path in sorted(agents.glob("*.plist")):
        _bootstrap(boss, [domain, str(path)], [])


def _print(boss: Supervisor, targets: list[str], flags: list[str]) -> Answer:
    del flags
    domain, label = _split(targets[0])
    if not label:
        if domain not in boss.domains:
            return Answer(125, err=f"Could not print domain: {_NO_DOMAIN}")
        return Answer(0, out=f"{domain} = {{\n\ttype = user\n}}\n")
    job = boss.jobs.get((domain, label))
    return _missing(domain, label) if job is None else Answer(0, out=_describe(domain, job))


def _bootstrap(boss: Supervisor, targets: list[str], flags: list[str]) -> Answer:
    del flags
    domain, *paths = targets
    if domain not in boss.domains:
        return Answer(125, err=f"Bootstrap failed: {_NO_DOMAIN}")
    try:
        spec = read_plist_spec(Path(paths[0]))
    except (OSError, Unreadable, KeyError, IndexError) as error:
        return Answer(5, err=f"{_EIO}{error}\n")
    key = (domain, spec.label)
    if key in boss.jobs or boss.now < boss.free_at.get(key, 0.0):
        return Answer(5, err=_EIO)
    if spec.label in boss.disabled:
        return Answer(119, err="Bootstrap failed: 119: Service is disabled\n")
    if _SESSION[domain.partition("/")[0]] not in spec.sessions:
        return Answer(134, err="Bootstrap failed: 134: Service cannot load in requested session\n")
    job = boss.add(key, spec)
    if spec.run_at_load or spec.restart == "always":
        job.wake(boss.now)
    return Answer(0)


def _bootout(boss: Supervisor, targets: list[str], flags: list[str]) -> Answer:
    del flags
    domain, label = _split(targets[0])
    job = boss.jobs.get((domain, label))
    if job is None or job.leaving:
        return Answer(3, err="Boot-out failed: 3: No such process\n")
    job.end(boss.now)
    return Answer(0)


def _kickstart(boss: Supervisor, targets: list[str], flags: list[str]) -> Answer:
    domain, label = _split(targets[0])
    job = boss.jobs.get((domain, label))
    if job is None:
        return _missing(domain, label)
    if "-k" in flags:
        job.cycle(boss.now)
    job.due = boss.now if job.process is None else job.due  # it does not wait for the throttle
    return Answer(0)


def _enable(boss: Supervisor, targets: list[str], flags: list[str]) -> Answer:
    del flags
    boss.disable(_split(targets[0])[1], False)
    return Answer(0)


def _disable(boss: Supervisor, targets: list[str], flags: list[str]) -> Answer:
    del flags
    boss.disable(_split(targets[0])[1], True)
    return Answer(0)


def _print_disabled(boss: Supervisor, targets: list[str], flags: list[str]) -> Answer:
    del flags, targets
    rows = "".join(f'\t\t"{label}" => disabled\n' for label in sorted(boss.disabled))
    return Answer(0, out=f"\n\tdisabled services = {{\n{rows}\t}}\n")


def _describe(domain: str, job: Running) -> str:
    """As `launchctl print` does, parts of the service one tab deeper, with states of their own."""
    spec = job.spec
    exits = ["last exit code = (never exited)"]
    if job.last_code is not None:
        killed = job.last_code < 0
        exits = [
            f"last terminating signal = Killed: {-job.last_code}"
            if killed
            else f"last exit code = {job.last_code}"
        ]
    arguments = [f"\t{word}" for word in spec.argv]
    fields = [
        f"active count = {int(job.pid is not None)}", f"path = {spec.path}", "type = LaunchAgent",
        f"state = {_state(job)}", f"program = {spec.argv[0]}", "arguments = {", *arguments, "}",
        f"domain = {domain}", f"minimum runtime = {spec.throttle_s}", f"exit timeout = {spec.exit_s}",
        f"runs = {job.runs}", *([f"pid = {job.pid}"] if job.pid else []), *exits,
        f"spawn type = {spec.process_type.lower()}", "resource coalition = {", "\tstate = active", "\tpid = 1", "}",
    ]  # fmt: skip
    return f"{domain}/{spec.label} = {{\n" + "".join(f"\t{field}\n" for field in fields) + "}\n"


def _state(job: Running) -> str:
    if job.told:
        return job.told
    if job.process is not None:
        return "running"
    return "spawn scheduled" if job.due is not None else "not running"


def _missing(domain: str, label: str) -> Answer:
    kind, _, uid = domain.partition("/")
    what = f'Bad request.\nCould not find service "{label}" in domain for user {kind}: {uid}\n'
    return Answer(113, err=what)


def _split(target: str) -> tuple[str, str]:
    kind, _, rest = target.partition("/")
    uid, _, label = rest.partition("/")
    return f"{kind}/{uid}", label
