"""`mtplx verify`: proves a pack against its own plain decoding and records it."""

from __future__ import annotations

import click
from mtplxd.errors import FailedPrecondition

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.commands.bench import Depths
from mtplx_client.cli.options import name_argument
from mtplx_client.cli.shape import leaf


@leaf(
    "verify",
    "verify smollm2-135m",
    "verify smollm2-135m --samples 10000",
    "verify smollm2-135m --depths 1,2 --dry-run --json",
)
@name_argument
@click.option(
    "--samples", type=click.IntRange(min=1), metavar="N", help="Tokens to test the law with (2000)."
)
@click.option("--prompts", type=click.IntRange(min=1), metavar="N", help="Prompts to compare texts of (4).")
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="Tokens of each text (64).")
@click.option("--depths", type=Depths(), default=(), help="Depths to compare (default: all the head has).")
@click.option("--dry-run", is_flag=True, help="Write no record.")
@pass_app
def verify(
    app: App,
    /,
    name: str,
    samples: int | None,
    prompts: int | None,
    max_tokens: int | None,
    depths: tuple[int, ...],
    dry_run: bool,
) -> None:
    """Compare the pack NAME with its own plain decoding at every depth; record it when it passes."""
    from mtplx_client.cli.progress import reporter
    from mtplx_client.cli.render import verdicts

    with app.client() as client, reporter(app, events=False) as progress:
        found = client.verify(
            name,
            samples=samples or 0,
            prompts=prompts or 0,
            max_tokens=max_tokens or 0,
            depths=depths,
            dry_run=dry_run,
            on_progress=progress,
        )
    if app.json:
        app.output.document(verdicts.document(found))
    else:
        app.output.line(verdicts.view(found, app.color, dry_run=dry_run))
    for failure in found.failures:
        app.fail(FailedPrecondition("verification failed", failure))
    if found.unrecorded:
        app.fail(FailedPrecondition("the verification is not recorded", found.unrecorded, "verify again"))
