"""`mtplx generate`: one prompt, one answer."""

from __future__ import annotations

from typing import Any

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.options import answer_options, choice_options, logprob_options, structure_options
from mtplx_client.cli.shape import leaf


@leaf(
    "generate",
    'generate "Name three rivers." --model smollm2-135m',
    'generate "Name three rivers." --temperature 0.6 --top-p 0.95 --depth 2 --stats',
    "generate - --max-tokens 200 < letter.txt",
    'generate "Once upon a time" --raw --json',
    'generate "Name three rivers." --seed 7 --reproducible',
    'generate "Ada is 36." --json-schema person.json --temperature 0',
    'generate "A name for a boat?" -n 3 --max-tokens 12',
    'generate "And another?" --session boats',
)
@click.argument("prompt", required=False, metavar="[PROMPT|-]")
@answer_options
@structure_options
@logprob_options
@click.option("--ignore-eos", is_flag=True, help="Go on after the model's end token.")
@click.option("--raw", is_flag=True, help="Take the prompt as it is, without the chat template.")
@choice_options
@click.option("--stats", is_flag=True, help="Add a line of numbers on standard error.")
@pass_app
def generate(app: App, /, prompt: str | None, stats: bool, n: int, **options: Any) -> None:
    """Answer PROMPT, or standard input when it is - or left out beside a pipe."""
    from mtplx_client.cli import records
    from mtplx_client.cli.answering import failure, show_answer
    from mtplx_client.cli.choosing import show_choices
    from mtplx_client.cli.render import views
    from mtplx_client.cli.stdin import checked, read_prompt
    from mtplx_client.cli.structures import read_grammar, read_schema

    said = (options[name] or "" for name in ("system", "model", "regex", "session"))
    for piece in (*options["stop"], *said):
        checked(piece)
    options["json_schema"] = read_schema(options["json_schema"])
    options["grammar"] = read_grammar(options["grammar"])
    text = read_prompt(prompt, options["raw"])
    with app.client() as client:
        events = client.generate(text, n=n if n > 1 else None, **options)
        reply = show_answer(app, events) if n == 1 else show_choices(app, events, n)
        replies = reply.choices or (reply,)
        for one in replies:
            if one.logprobs is not None and not app.json:
                app.output.note(views.logprobs(one.logprobs))
        for one in replies if stats else ():
            plain = records.plain_note(app.home, client, one.model, one.stats.depth)
            app.output.note(views.stats(one, plain))
    wrong = next((wrong for one in replies if (wrong := failure(one)) is not None), None)
    if wrong is not None:
        app.fail(wrong)
