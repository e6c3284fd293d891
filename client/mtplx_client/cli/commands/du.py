"""`mtplx du`: what the daemon's home takes of the disk."""

from __future__ import annotations

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import leaf


@leaf("du", "du", "du --json")
@pass_app
def du(app: App, /) -> None:
    """Show what packs, store, logs and runs take of the disk. Needs no daemon."""
    from mtplx_client.cli.render import uses
    from mtplx_client.disk_use import measure_use

    found = measure_use(app.local_home("du"))
    if app.json:
        app.output.document(uses.document(found))
    else:
        app.output.line(uses.lines(found))
