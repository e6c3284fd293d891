"""`mtplx logs`: the daemon's log, read from its folder."""

from __future__ import annotations

from pathlib import Path

import click
from mtplxd.errors import NotFound

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import leaf


@leaf("logs", "logs", "logs -n 20", "logs -f")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=200, metavar="N", help="How many (default 200)."
)
@pass_app
def logs(app: App, /, follow: bool, lines: int) -> None:
    """Show the end of the daemon's log; it holds no prompts and no answers."""
    from mtplx_client.cli.tail import read_lines

    path = _log_file(app)
    for line in read_lines(path, lines, follow):
        _show(app, line)
    if app.json:
        app.output.final({"path": str(path)})


def _show(app: App, line: str) -> None:
    if app.json:
        app.output.event({"line": line})
    else:
        app.output.text(line + "\n")


def _log_file(app: App) -> Path:
    """The log in use. Raises NotFound before the daemon's first start."""
    path = app.local_home("logs").logs / "mtplxd.log"
    if not path.is_file():
        raise NotFound("no log yet", path, "the daemon writes one when it starts")
    return path
