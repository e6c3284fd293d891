"""`mtplx tune`: finds the depth that pays on this machine, and keeps it."""

from __future__ import annotations

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.commands.bench import Depths
from mtplx_client.cli.options import name_argument, no_fans_option
from mtplx_client.cli.shape import leaf

SUITES = ("chat", "code", "long-code", "prose", "mixed")


@leaf(
    "tune",
    "tune smollm2-135m",
    "tune smollm2-135m --quick",
    "tune smollm2-135m --depths 1,2,3,auto --suite code --prompts 12 --json",
)
@name_argument
@click.option(
    "--depths",
    type=Depths(),
    default=(),
    help="Depths to compare with plain decoding (default: 1,2,3,auto as far as the head reaches).",
)
@click.option("--suite", type=click.Choice(SUITES), default="mixed", show_default=True, help="Prompts.")
@click.option(
    "--prompts", type=click.IntRange(min=1), metavar="N", help="How many prompts (8, which is the least)."
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=2),
    metavar="N",
    help="Tokens of each answer (default: as many as fit some minutes).",
)
@click.option(
    "--context", type=click.IntRange(min=1), metavar="N", help="Fill each prompt up to N tokens with code."
)
@click.option("--quick", is_flag=True, help="A minute or two: shorter answers, no auto.")
@click.option("--accept-throttled", is_flag=True, help="Decide though the machine changed its speed.")
@click.option("--no-save", is_flag=True, help="Keep no winner, and clear none.")
@click.option("--retune", is_flag=True, help="Measure though the same was measured before.")
@no_fans_option
@pass_app
def tune(
    app: App,
    /,
    name: str,
    depths: tuple[int | str, ...],
    suite: str,
    prompts: int | None,
    max_tokens: int | None,
    context: int | None,
    quick: bool,
    accept_throttled: bool,
    no_save: bool,
    retune: bool,
    no_fans: bool,
) -> None:
    """Measure the model NAME at several depths, decide which pays on this machine, and keep it.

    The winner is what requests have that name no depth. Without one nothing is kept, which is no error.
    """
    from mtplx_client.cli.progress import reporter
    from mtplx_client.cli.render import tunings

    with app.client() as client, reporter(app, events=False) as progress:
        found = client.tune(
            name,
            depths=depths,
            suite=suite,
            prompts=prompts or 0,
            max_tokens=max_tokens or 0,
            context=context or 0,
            quick=quick,
            accept_throttled=accept_throttled,
            no_save=no_save,
            retune=retune,
            no_fans=no_fans,
            on_progress=progress,
        )
    if app.json:
        app.output.document(tunings.document(found))
    else:
        app.output.line(tunings.view(found, app.color))
