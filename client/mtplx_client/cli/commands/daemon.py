"""`mtplx status`, `stop` and `wait-ready`: the daemon itself."""

from __future__ import annotations

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import leaf

STOP_WAIT_S = 45.0
"""How long `stop` waits for the process: the default drain and some."""
READY_WAIT_S = 30.0


@leaf("status", "status", "status --json")
@pass_app
def status(app: App, /) -> None:
    """Show the daemon's state: models, queue, memory, BLAS."""
    with app.client() as client:
        found = client.status()
    if app.json:
        from mtplx_client.cli.render import documents

        app.output.document(documents.status(found))
    else:
        from mtplx_client.cli.render import views

        app.output.line(views.status(found, app.color))


@leaf("stop", "stop", "stop --timeout 60")
@pass_app
def stop(app: App, /) -> None:
    """Stop the daemon: it finishes what it is doing first. Waits until its process is gone."""
    from mtplx_client.cli.processes import wait_gone

    with app.client() as client:
        pid = client.stop().pid
    wait_gone(pid, app.timeout or STOP_WAIT_S)
    if app.json:
        app.output.document({"pid": pid, "stopped": True, "socket": str(app.socket_path)})
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
            {"ready": True, "version": found.version, "pid": found.pid, "socket": str(app.socket_path)}
        )
    else:
        app.output.line(f"ready: mtplxd {found.version}, pid {found.pid}")
