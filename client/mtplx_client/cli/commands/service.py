"""`mtplx service`: the daemon as a job that starts at login and comes back after a crash."""

from __future__ import annotations

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import Branch, leaf

READY_WAIT_S = 30.0
"""How long a start may take until the daemon answers; `--timeout` says otherwise."""


@click.group("service", cls=Branch)
def service() -> None:
    """Keep the daemon always on: started at login, and again after a crash."""


@leaf("install", "service install", "service install --json")
@pass_app
def install(app: App, /) -> None:
    """Install the job and start it; after an update or a change of settings, the same again.

    What MTPLXD_* and HF_* variables say in this shell is written down with it, keys excepted.
    """
    from mtplx_client.cli import serving

    serving.install(app, app.timeout or READY_WAIT_S)


@leaf("uninstall", "service uninstall", "service uninstall --purge")
@click.option("--purge", is_flag=True, help="Remove packs, sessions, settings and logs too.")
@pass_app
def uninstall(app: App, /, purge: bool) -> None:
    """Stop the job and remove it. Packs and sessions stay, unless --purge."""
    from mtplx_client.cli import serving

    serving.uninstall(app, purge)


@leaf("start", "service start")
@pass_app
def start(app: App, /) -> None:
    """Start the job and wait until the daemon serves."""
    from mtplx_client.cli import serving

    serving.start(app, app.timeout or READY_WAIT_S)


@leaf("stop", "service stop")
@pass_app
def stop(app: App, /) -> None:
    """Stop the job until the next login, or `service start`."""
    from mtplx_client.cli import serving

    serving.stop(app)


@leaf("restart", "service restart")
@pass_app
def restart(app: App, /) -> None:
    """Stop the job and start it, its file read anew."""
    from mtplx_client.cli import serving

    serving.restart(app, app.timeout or READY_WAIT_S)


@leaf("status", "service status", "service status --json")
@pass_app
def status(app: App, /) -> None:
    """Show the job: where it is loaded, its process, how it ended last."""
    from mtplx_client.cli import serving

    serving.show(app)


@leaf("logs", "service logs", "service logs -f")
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=50, metavar="N", help="How many (default 50)."
)
@pass_app
def logs(app: App, /, follow: bool, lines: int) -> None:
    """Show what the job wrote when it failed, and the end of the daemon's log."""
    from mtplx_client.cli import serving

    serving.logs(app, lines, follow)


for _command in (install, uninstall, start, stop, restart, status, logs):
    service.add_command(_command)
