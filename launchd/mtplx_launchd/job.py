"""The daemon as a job: its label, command line, environment and files. Pure; how a system writes that down is `plist`'s
and `unit`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mtplxd import __version__
from mtplxd.config import KEYS, Settings
from mtplxd.paths import DEFAULT_HOME, Home, absolute

LABEL = "org.mtplxd.mtplxd"
ERRORS_NAME = "mtplxd.err"
THROTTLE_S = 30
"""Between two starts: a loader of many gigabytes that fails at once must not keep the machine busy."""
EXIT_S, SPARE_S = 90, 60
"""Before a job that was told to end is killed; a longer `drain_s` and this much more go before it."""
PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_HUB = ("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE", "XDG_CACHE_HOME")
_NET = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy", "SSL_CERT_FILE")
_SECRET = ("HF_TOKEN",)
_ARGUMENTS = ("home", "socket")
"""Settings that stand on the command line: a client must find the daemon whatever its own environment says."""


@dataclass(frozen=True)
class Job:
    """All a system has to know to keep the daemon running. Paths are absolute, times are seconds."""

    label: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    home: Path
    errors: Path
    throttle_s: int = THROTTLE_S
    exit_s: int = EXIT_S
    version: str = __version__
    left_out: tuple[str, ...] = ()
    """Variables that would have mattered and are kept out of the file, since they hold a key."""


def job_label(home: Home) -> str:
    """One label a home, so that a second home is a second job and never takes the first one's place."""
    if home.root == absolute(DEFAULT_HOME):
        return LABEL
    return f"{LABEL}.{hashlib.sha256(str(home.root).encode()).hexdigest()[:8]}"


def describe_job(home: Home, settings: Settings, interpreter: str, env: Mapping[str, str]) -> Job:
    """The job of a home, with what this shell's environment says of the daemon and the Hub.

    A service starts with next to no environment: what is set here today is written down, keys excepted.
    """
    arguments = [interpreter, "-P", "-m", "mtplxd", "--home", str(home.root)]
    if settings.source("socket") in ("flag", "env"):
        arguments += ["--socket", str(settings.socket)]
    ours = [key.env for key in KEYS if key.name not in _ARGUMENTS]
    carried = {name: env[name] for name in (*ours, *_HUB, *_NET) if env.get(name)}
    secret = [name for name, value in carried.items() if name in _NET and "@" in value]
    secret += [name for name in _SECRET if env.get(name)]
    return Job(
        label=job_label(home),
        arguments=tuple(arguments),
        environment={"PATH": PATH, **{name: carried[name] for name in carried if name not in secret}},
        home=home.root,
        errors=home.logs / ERRORS_NAME,
        exit_s=max(EXIT_S, int(settings.drain_s) + SPARE_S),
        left_out=tuple(secret),
    )
