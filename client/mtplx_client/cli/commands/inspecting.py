"""`mtplx inspect`: what a checkpoint is and whether it runs, from its headers, with or without a daemon."""

from __future__ import annotations

import click
from mtplxd.errors import FailedPrecondition

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.options import name_argument
from mtplx_client.cli.shape import leaf


@leaf("inspect", "inspect smollm2-135m", "inspect ./my-pack --json", "inspect zai-org/GLM-4.7-Flash --check")
@name_argument
@click.option("--check", is_flag=True, help="Exit 3 unless it runs here as it is.")
@pass_app
def inspect(app: App, /, name: str, check: bool) -> None:
    """Say what NAME is: its family, its head, its tier with every reason, and whether it fits this machine.

    Reads configs, indexes and headers only; of a repository that is not here, no more than those.
    """
    from mtplxd.packs.inspection import Room, document, inspect_pack, look_up
    from mtplxd.packs.machine import total_memory, widens_halves
    from mtplxd.packs.remembered import keep_in

    from mtplx_client.cli.render import inspections
    from mtplx_client.names import model_ref

    keep_in(app.home.root)
    room = Room(total_memory(), app.settings.memory_budget, widens_halves())
    ref = model_ref(name)
    found = inspect_pack(look_up(ref, app.home), ref, room)
    if app.json:
        app.output.document(document(found))
    else:
        app.output.line(inspections.report(found))
    if check and not (found.can_run and found.fits):
        what, fix = inspections.refusal(found)
        app.fail(FailedPrecondition(what, ref, fix))
