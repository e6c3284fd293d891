"""What installing the helper comes to: its places, its job's text, the commands that run as root, in order."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from xml.sax.saxutils import escape

from mtplxd.errors import InvalidArgument

from mtplx_launchd.helper.interpreter import ISOLATED, Interpreter

LABEL = "org.mtplxd.fand"
UNIT = "mtplxd-fand.service"
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")


@dataclass(frozen=True)
class Places:
    """Where the helper and its job lie, and the system that keeps it running: launchd, systemd or none."""

    helper: Path
    job: Path
    keeper: str
    template: str
    group: str


MAC = Places(
    Path("/Library/PrivilegedHelperTools", LABEL), Path(f"/Library/LaunchDaemons/{LABEL}.plist"), "launchd",
    "fand.plist", "wheel",
)  # fmt: skip
LINUX = Places(
    Path("/usr/local/libexec/mtplxd-fand"), Path("/etc/systemd/system", UNIT), "systemd", UNIT, "root"
)


def places_here(platform: str = sys.platform, systemd: bool | None = None) -> Places:
    """Those of this system; on Linux without systemd nobody starts the helper."""
    if platform == "darwin":
        return MAC
    runs = Path("/run/systemd/system").is_dir() if systemd is None else systemd
    return LINUX if runs else Places(LINUX.helper, LINUX.job, "none", LINUX.template, LINUX.group)


def command_line(places: Places, interpreter: Interpreter, uid: int) -> list[str]:
    """How the helper is started. Raises InvalidArgument for a path that a job's file could take for something else."""
    words = [str(interpreter.executable), *ISOLATED, str(places.helper), "--uid", str(uid)]
    for word in words:
        if not _PLAIN.fullmatch(word):
            raise InvalidArgument(
                "this path has letters that no job should have", word, "give another --interpreter"
            )
    return words


def render_job(places: Places, words: list[str]) -> bytes:
    """The job's file."""
    template = resources.files("mtplx_launchd.helper").joinpath("templates", places.template)
    plist = places.template.endswith(".plist")
    told = "".join(f"<string>{escape(word)}</string>" for word in words) if plist else " ".join(words)
    return template.read_text(encoding="utf-8").replace("@ARGUMENTS@", told).encode()


def file_steps(places: Places, staged: Path) -> list[list[str]]:
    """Puts both files in their places, root's."""
    own = ["-o", "root", "-g", places.group]
    steps = [["/usr/bin/install", "-d", *own, "-m", "0755", str(places.helper.parent)]]
    if places.helper.parent.is_dir():
        steps = []
    steps.append(["/usr/bin/install", *own, "-m", "0644", str(staged / "helper"), str(places.helper)])
    if places.keeper != "none":
        steps.append(["/usr/bin/install", *own, "-m", "0644", str(staged / "job"), str(places.job)])
    return steps


def start_steps(places: Places) -> list[list[str]]:
    """Starts it, now and after every restart of the machine; one that runs is ended first, and gives fans back."""
    if places.keeper == "launchd":
        return [*_unload(places), ["/bin/launchctl", "bootstrap", "system", str(places.job)]]
    if places.keeper == "systemd":
        ctl = "/usr/bin/systemctl"
        return [[ctl, "daemon-reload"], [ctl, "enable", places.job.name], [ctl, "restart", places.job.name]]
    return []


def remove_steps(places: Places) -> list[list[str]]:
    """Undoes it all."""
    files = [["/bin/rm", "-f", str(places.helper)]]
    if places.keeper == "launchd":
        return [*_unload(places), ["/bin/rm", "-f", str(places.job)], *files]
    if places.keeper == "systemd":
        ctl = "/usr/bin/systemctl"
        stop = [[ctl, "disable", "--now", places.job.name]] if places.job.exists() else []
        return [*stop, ["/bin/rm", "-f", str(places.job)], [ctl, "daemon-reload"], *files]
    return files


def _unload(places: Places) -> list[list[str]]:
    return [["/bin/launchctl", "bootout", f"system/{LABEL}"]] if places.job.exists() else []
