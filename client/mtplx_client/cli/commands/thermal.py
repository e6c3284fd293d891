"""`mtplx thermal`: heat, fans, and the root helper that may hold them."""

from __future__ import annotations

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import Branch, leaf
from mtplx_client.fans import Thermal

MODES = ("auto", "smart", "max")


@click.group("thermal", cls=Branch)
def thermal() -> None:
    """Heat and fans."""


@leaf("status", "thermal status", "thermal status --json")
@pass_app
def status(app: App, /) -> None:
    """Show how hot the machine is, who has its fans, and whether the fan helper answers."""
    with app.client() as client:
        _show(app, client.fans())


@leaf("set", "thermal set smart", "thermal set auto")
@click.argument("mode", type=click.Choice(MODES))
@pass_app
def set_(app: App, /, mode: str) -> None:
    """Choose when fans are held: auto for measurements only, smart while text is made, max always.

    The choice is kept. Without the fan helper it changes nothing until that is installed.
    """
    with app.client() as client:
        _show(app, client.set_fans(mode))


def _show(app: App, found: Thermal) -> None:
    from mtplx_client.cli.render import fans

    if app.json:
        app.output.document(fans.document(found))
    else:
        app.output.line(fans.view(found, app.color))


for _command in (status, set_):
    thermal.add_command(_command)
