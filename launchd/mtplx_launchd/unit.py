"""A job as a systemd user unit. Pure: no file is written and systemd is not asked."""

from __future__ import annotations

import shlex
from importlib.resources import files
from string import Template

from mtplxd.errors import InvalidArgument

from mtplx_launchd.job import Job


def render_unit(job: Job) -> bytes:
    """The unit's text. Raises InvalidArgument for a value that a line of a unit cannot hold."""
    template = Template((files(__package__) / "templates" / "mtplxd.service").read_text(encoding="utf-8"))
    environment = [f"Environment={_word(f'{name}={value}')}" for name, value in job.environment.items()]
    text = template.substitute(
        arguments=" ".join(_word(argument, dollar="$$") for argument in job.arguments),
        environment="\n".join(environment),
        home=_path(str(job.home)),
        errors=_path(str(job.errors)),
        throttle=job.throttle_s,
        exit=job.exit_s,
    )
    return f"# mtplxd {job.version}\n{text}".encode()


def read_unit_arguments(unit: bytes) -> list[str]:
    """The command line in a unit that `render_unit` made, [] where there is none."""
    for line in unit.decode(errors="replace").splitlines():
        if line.startswith("ExecStart="):
            try:
                words = shlex.split(line.removeprefix("ExecStart="))
            except ValueError:
                return []
            return [word.replace("$$", "$").replace("%%", "%") for word in words]
    return []


def _word(text: str, dollar: str = "$") -> str:
    """One word in quotes; `%` and, on a command line, `$` mean something to systemd."""
    _check(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", dollar)
    return f'"{escaped}"'


def _path(text: str) -> str:
    """A path up to the end of its line, which takes no quotes."""
    _check(text)
    return text.replace("%", "%%")


def _check(text: str) -> None:
    if not text.isprintable():
        raise InvalidArgument("systemd cannot hold a control character", ascii(text), "choose another path")
