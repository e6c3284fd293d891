"""`mtplx generate`: one prompt, one answer."""

from __future__ import annotations

from typing import Any

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.options import answer_options
from mtplx_client.cli.shape import leaf


@leaf(
    "generate",
    'generate "Name three rivers." --model smollm2-135m',
    'generate "Name three rivers." --temperature 0.6 --top-p 0.95 --depth 2 --stats',
    "generate - --max-tokens 200 < letter.txt",
    'generate "Once upon a time" --raw --json',
)
@click.argument("prompt", required=False, metavar="[PROMPT|-]")
@answer_options
@click.option("--ignore-eos", is_flag=True, help="Go on after the model's end token.")
@click.option("--raw", is_flag=True, help="Take the prompt as it is, without the chat template.")
@click.option("--stats", is_flag=True, help="Add a line of numbers on standard error.")
@pass_app
def generate(app: App, /, prompt: str | None, stats: bool, **options: Any) -> None:
    """Answer PROMPT, or standard input when it is - or left out beside a pipe."""
    from mtplx_client.cli import records
    from mtplx_client.cli.answering import failure, show_answer
    from mtplx_client.cli.render import views
    from mtplx_client.cli.stdin import checked, read_prompt

    text = read_prompt(prompt, options["raw"])
    for piece in (*options["stop"], options["system"] or "", options["model"]):
        checked(piece)
    with app.client() as client:
        reply = show_answer(app, client.generate(text, **options))
        if stats:
            plain = records.plain_note(app.home, client, reply.model, reply.stats.depth)
            app.output.note(views.stats(reply.usage, reply.stats, plain))
    wrong = failure(reply)
    if wrong is not None:
        app.fail(wrong)
