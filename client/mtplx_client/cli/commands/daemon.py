"""`mtplx status`, `stop` and `wait-ready`: the daemon itself."""

from __future__ import annotations

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import leaf

STOP_WAIT_S = 45.0
"""How long `stop` waits for the process: the default drain and some."""
READY_WAIT_S = 30.0


@leaf("status", "status", "status --json", "status --watch", "status --socket ssh://me@studio")
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@pass_app
def status(app: App, /, watch: bool) -> None:
    """Show the daemon's state: models, requests, queue, memory, BLAS."""
    from mtplx_client.cli.render import documents, views

    with app.client() as client:
        if not watch:
            found = client.status()
            if app.json:
                app.output.document(documents.status(found))
            else:
                app.output.line(views.status(found, app.color))
            return
        for found in client.watch():
            if app.json:
                app.output.event(documents.status(found))
            else:
                app.output.page(views.status(found, app.color))


@leaf("stop", "stop", "stop --timeout 60")
@pass_app
def stop(app: App, /) -> None:
    """Stop the daemon: it finishes what it is doing first. Waits until its process is gone."""
    from mtplx_client.cli.processes import is_alive, wait_gone

    with app.client() as client:
        pid = client.stop().pid
    wait_gone(pid, app.timeout or STOP_WAIT_S, is_alive if app.link is None else app.link.is_alive)
    if app.json:
        app.output.document({"pid": pid, "stopped": True, "socket": app.socket_name})
    else:
        app.output.line(f"the daemon has stopped (pid {pid})")


@leaf("wait-ready", "wait-ready", "wait-ready --timeout 60")
@pass_app
def wait_ready(app: App, /) -> None:
    """Wait until the daemon serves (30 s, or --timeout)."""
    with app.client() as client:
        found = client.wait_ready(app.timeout or READY_WAIT_S)
    if app.json:
        app.output.document(
            {"ready": True, "version": found.version, "pid": found.pid, "socket": app.socket_name}
        )
    else:
        app.output.line(f"ready: mtplxd {found.version}, pid {found.pid}")
