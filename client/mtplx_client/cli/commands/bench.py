"""`mtplx bench`: measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.options import depth_option, model_option, no_fans_option, sampler_options
from mtplx_client.cli.shape import Branch, leaf
from mtplx_client.requests import AUTO

if TYPE_CHECKING:
    from mtplx_client.generation import SamplerOptions

MOST_CLIENTS = 64


class Depths(click.ParamType):  # type: ignore[type-arg]
    """`0,1,2,3,auto`, as a tuple without repeats."""

    name = "depths"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | str, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not all(part == AUTO or (part.isascii() and part.isdigit()) for part in parts):
            self.fail(f"{value!r} is no list of depths such as 0,1,2,3,auto", param, ctx)
        return tuple(dict.fromkeys(AUTO if part == AUTO else int(part) for part in parts))


class Widths(click.ParamType):  # type: ignore[type-arg]
    """`1,2,4,8`: numbers of clients, each at least 1."""

    name = "widths"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not all(part.isascii() and part.isdigit() and 0 < int(part) <= MOST_CLIENTS for part in parts):
            wanted = f"is no list of numbers from 1 to {MOST_CLIENTS} such as 1,2,4,8"
            self.fail(f"{value!r} {wanted}", param, ctx)
        return tuple(dict.fromkeys(int(part) for part in parts))


@click.group("bench", cls=Branch)
def bench() -> None:
    """Measure the daemon on this machine."""


@leaf(
    "decode",
    "bench decode --depths 0,1,2,3,auto",
    "bench decode --model smollm2-135m --prompts 8 --max-tokens 128 --suite chat",
    "bench decode --path socket --json",
)
@model_option
@click.option(
    "--depths",
    type=Depths(),
    default="0,1,2,3",
    help="Depths to compare; 0 = plain decoding, auto = chosen as the text goes.",
)
@sampler_options
@click.option(
    "--max-tokens", type=click.IntRange(min=2), default=128, metavar="N", help="Tokens of each answer."
)
@click.option(
    "--prompts", type=click.IntRange(min=1), metavar="N", help="How many prompts (default: the suite's)."
)
@click.option("--suite", default="", metavar="NAME", help="Prompts to use: chat, code, prose or mixed.")
@click.option(
    "--path",
    type=click.Choice(["inprocess", "socket"]),
    default="inprocess",
    help="Time inside the daemon, or over the socket.",
)
@no_fans_option
@pass_app
def decode(
    app: App,
    /,
    model: str,
    depths: tuple[int | str, ...],
    max_tokens: int,
    prompts: int | None,
    suite: str,
    path: str,
    no_fans: bool,
    **sampler: Any,
) -> None:
    """Compare depths with plain decoding, prompt by prompt, one seed a prompt (default T 0.6, top-p 0.95)."""
    from mtplx_client.bench import Plan, measure_over_socket
    from mtplx_client.bench_fans import fans_held
    from mtplx_client.cli import records
    from mtplx_client.cli.progress import reporter
    from mtplx_client.cli.render import documents, views

    given = {name: value for name, value in sampler.items() if value is not None}
    asked: SamplerOptions = {"temperature": 0.6, "top_p": 0.95, **given}  # type: ignore[typeddict-item]
    plan = Plan(model, depths, max_tokens, prompts or 0, suite)
    with app.client() as client:
        with reporter(app, events=False) as progress:
            if path == "socket":
                with fans_held(client, "bench decode", wanted=not no_fans):
                    found = measure_over_socket(client, plan, asked, progress)
            else:
                found = client.measure(
                    model,
                    depths=depths,
                    max_tokens=max_tokens,
                    prompts=plan.prompts,
                    suite=suite,
                    no_fans=no_fans,
                    on_progress=progress,
                    **asked,
                )
        records.save(app.home, client, found, path)
    if app.json:
        app.output.document(documents.measurement(found, path))
    else:
        app.output.line(views.measurement(found, path, app.color))


@leaf(
    "clients",
    "bench clients --clients 1,2,4,8",
    "bench clients --model smollm2-135m --depth 2 --max-tokens 96 --suite chat",
    "bench clients --clients 4 --no-plain --json",
)
@model_option
@click.option("--clients", type=Widths(), default="1,2,4,8", help="How many clients ask at the same time.")
@depth_option
@sampler_options
@click.option(
    "--max-tokens", type=click.IntRange(min=2), default=96, metavar="N", help="Tokens of each answer."
)
@click.option("--suite", default="", metavar="NAME", help="Prompts to use: chat, code, prose or mixed.")
@click.option(
    "--repeats", type=click.IntRange(1, 100), default=2, metavar="N", help="How often each is measured."
)
@click.option("--plain/--no-plain", default=True, help="Measure plain decoding of as many clients as well.")
@no_fans_option
@pass_app
def clients(
    app: App,
    /,
    model: str,
    clients: tuple[int, ...],
    depth: int | str | None,
    max_tokens: int,
    suite: str,
    repeats: int,
    plain: bool,
    no_fans: bool,
    **sampler: Any,
) -> None:
    """Measure clients that ask at the same time against one that decodes plainly (default T 0.6, top-p 0.95)."""
    import asyncio

    from mtplx_client.bench_clients import ClientsPlan, measure_clients
    from mtplx_client.bench_fans import fans_held
    from mtplx_client.cli.progress import reporter
    from mtplx_client.cli.render import crowds

    given = {name: value for name, value in sampler.items() if value is not None}
    asked: SamplerOptions = {"temperature": 0.6, "top_p": 0.95, **given}  # type: ignore[typeddict-item]
    plan = ClientsPlan(model, clients, depth, max_tokens, suite, repeats, plain)
    with app.client() as client, fans_held(client, "bench clients", wanted=not no_fans) as look:
        blas = client.status().blas
        with reporter(app, events=False) as progress:
            found = asyncio.run(measure_clients(app.socket_path, plan, asked, progress, app.timeout))
        place = look()
    if app.json:
        app.output.document(crowds.document(found, blas, place))
    else:
        app.output.line(crowds.view(found, blas, place, app.color))


@leaf(
    "restore",
    "bench restore --tokens 4096",
    "bench restore --model smollm2-135m --tokens 1024 --repeats 5 --json",
)
@model_option
@click.option(
    "--tokens", type=click.IntRange(min=2), default=4096, metavar="N", help="Tokens of each prompt."
)
@click.option(
    "--prompts", type=click.IntRange(1, 100), default=1, metavar="N", help="How many different prompts."
)
@click.option(
    "--repeats", type=click.IntRange(1, 100), default=3, metavar="N", help="How often each is brought back."
)
@depth_option
@no_fans_option
@pass_app
def restore(
    app: App, /, model: str, tokens: int, prompts: int, repeats: int, depth: int | str | None, no_fans: bool
) -> None:
    """Compare reading a prompt with bringing it back from memory and from disk. Unloads the model in between."""
    from mtplx_client.bench_fans import fans_held
    from mtplx_client.bench_restore import RestorePlan, measure_restore
    from mtplx_client.cli.progress import reporter
    from mtplx_client.cli.render import restores

    plan = RestorePlan(model, tokens, prompts, repeats, depth)
    with app.client() as client, fans_held(client, "bench restore", wanted=not no_fans) as look:
        with reporter(app, events=False) as progress:
            found = measure_restore(client, plan, progress)
        place = look()
    if app.json:
        app.output.document(restores.document(found, place))
    else:
        app.output.line(restores.view(found, place))


bench.add_command(decode)
bench.add_command(clients)
bench.add_command(restore)
