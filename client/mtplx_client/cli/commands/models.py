"""`mtplx pull`, `ls`, `show` and `rm`: packs on disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from mtplxd.errors import DataLoss

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.options import name_argument
from mtplx_client.cli.shape import leaf

if TYPE_CHECKING:
    from mtplx_client.client import Client


@leaf("pull", "pull smollm2-135m", "pull org/name", "pull org/name@revision --json")
@name_argument
@pass_app
def pull(app: App, /, name: str) -> None:
    """Fetch the model NAME, or the repository org/name of the Hub, and make it a pack.

    A pull that broke off is taken up again.
    """
    from mtplx_client.cli.progress import reporter
    from mtplx_client.cli.render import documents, views

    with app.client() as client, reporter(app) as progress:
        pack = client.pull(name, on_progress=progress)
    if app.json:
        app.output.final(documents.pack(pack))
    else:
        app.output.line(views.pack(pack))


@leaf("ls", "ls", "ls --json")
@pass_app
def ls(app: App, /) -> None:
    """List the packs on disk."""
    from mtplx_client.cli.render import documents, views

    with app.client() as client:
        found = client.listing()
    if app.json:
        app.output.document(documents.listing(found))
    else:
        app.output.line(views.listing(found, app.color))
        for one in found.damaged:
            app.output.note(views.damaged(one))


@leaf("show", "show smollm2-135m", "show ./my-pack --json")
@name_argument
@pass_app
def show(app: App, /, name: str) -> None:
    """Describe the pack NAME: size, family, tier, head and fingerprints."""
    from mtplx_client.cli.render import documents, views

    with app.client() as client:
        found = client.show(name)
    if app.json:
        manifest = json.loads(found.manifest_json) if found.manifest_json else None
        app.output.document({**documents.pack(found.pack), "manifest": manifest})
    else:
        app.output.line(views.pack(found.pack))


@leaf("rm", "rm smollm2-135m", "rm smollm2-135m --yes")
@name_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_app
def rm(app: App, /, name: str, yes: bool) -> None:
    """Delete the pack NAME from disk."""
    from mtplxd.packs.resolver import check_removable

    from mtplx_client.cli.asking import confirm
    from mtplx_client.cli.render import documents
    from mtplx_client.cli.render.words import size

    check_removable(name)
    with app.client() as client:
        if not yes:
            confirm(_question(client, name))
        gone = client.rm(name)
    if app.json:
        pack_fields = documents.pack(gone.pack) if gone.pack.name else {}
        app.output.document({**pack_fields, "name": gone.name, "bytes_freed": gone.bytes_freed})
    else:
        app.output.line(f"{gone.name} is gone, {size(gone.bytes_freed)} freed")


def _question(client: Client, name: str) -> str:
    from mtplx_client.cli.render.words import size

    try:
        pack = client.show(name).pack
    except DataLoss as damage:
        return f"Delete {name}, which is damaged ({damage.what})?"
    return f"Delete {pack.name} ({size(pack.bytes)}) from {pack.path}?"
