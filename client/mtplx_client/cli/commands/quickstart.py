"""`mtplx quickstart`: from nothing to a measured answer."""

from __future__ import annotations

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import leaf

MODEL = "smollm2-135m"


@leaf("quickstart", "quickstart", "quickstart --skip-tune", "quickstart --stop-after")
@click.option("--model", default=MODEL, show_default=True, metavar="NAME", help="The model to try.")
@click.option("--skip-tune", is_flag=True, help="Do not measure which depth pays here.")
@click.option("--keep/--stop-after", default=True, help="Whether a daemon started here goes on afterwards.")
@pass_app
def quickstart(app: App, /, model: str, skip_tune: bool, keep: bool) -> None:
    """Start the daemon, fetch and load a small model, stream an answer and find the depth that pays."""
    from mtplx_client.cli.tour import Tour

    app.local_home("quickstart")
    Tour(app, model, measure=not skip_tune, keep=keep).run()
