"""`mtplx load`, `unload`, `ps` and `cancel`: models in memory and what they work on."""

from __future__ import annotations

from typing import Any

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.options import (
    depth_option,
    force_option,
    keep_alive_option,
    name_argument,
    plain_option,
    store_option,
)
from mtplx_client.cli.shape import leaf


class RequestId(click.ParamType):  # type: ignore[type-arg]
    """What `ps` shows of a request."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not str(value).strip():
            self.fail("it is empty", param, ctx)
        return str(value).strip()


@leaf(
    "load",
    "load smollm2-135m",
    "load smollm2-135m --keep-alive 10m --depth 2",
    "load smollm2-135m --keep-alive -1",
)
@name_argument
@keep_alive_option
@depth_option
@click.option("--depth-max", type=int, metavar="N", help="Raise the head's deepest depth.")
@plain_option
@force_option
@store_option
@pass_app
def load(app: App, /, name: str, **options: Any) -> None:
    """Bring the model NAME into memory."""
    from mtplx_client.cli.progress import reporter
    from mtplx_client.cli.render import documents, views

    with app.client() as client, reporter(app) as progress:
        model = client.load(name, on_progress=progress, **options)
    if app.json:
        app.output.final(documents.resident(model))
    else:
        app.output.line(views.residents([model], app.color))


@leaf("unload", "unload smollm2-135m")
@name_argument
@pass_app
def unload(app: App, /, name: str) -> None:
    """Take the model NAME out of memory; its pack stays on disk."""
    from mtplx_client.cli.render import documents
    from mtplx_client.cli.render.words import size

    with app.client() as client:
        found = client.status()
        used = any(model.in_use and name in (model.name, model.path) for model in found.models)
        if found.queue.running and not used:  # one in use is refused at once
            app.output.note("a request is in work: the model leaves when the engine is free")
        gone = client.unload(name)
    if app.json:
        fields = documents.resident(gone.resident) if gone.resident.name else {}
        app.output.document({**fields, "name": gone.name, "bytes_freed": gone.bytes_freed})
    else:
        app.output.line(f"{gone.name} left memory, {size(gone.bytes_freed)} freed")


@leaf("ps", "ps", "ps --json")
@pass_app
def ps(app: App, /) -> None:
    """List the models in memory and the requests in work."""
    from mtplx_client.cli.render import documents, views

    with app.client() as client:
        found = client.status()
    if app.json:
        models = [documents.resident(model) for model in found.models]
        work = [documents.in_flight(request) for request in found.in_flight]
        app.output.document({"models": models, "in_flight": work})
        return
    app.output.line(views.residents(found.models, app.color))
    if found.in_flight:
        app.output.line()
        app.output.line(views.requests(found.in_flight, app.color))


@leaf("cancel", "cancel 3f9a1c02be77", "cancel 3f9a1c02be77 --json")
@click.argument("id", type=RequestId())
@pass_app
def cancel(app: App, /, id: str) -> None:
    """End the request ID, all its answers; `mtplx ps` lists those in work."""
    from mtplx_client.errors import NotFound

    with app.client() as client:
        found = client.cancel(id)
    if app.json:
        app.output.document({"id": id, "found": found})
    elif found:
        app.output.line(f"request {id} is cancelled")
    if not found:
        app.fail(NotFound("no such request is in work", id, "it has ended, or see `mtplx ps`"))
