"""Options that several commands share, once each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class ModelName(click.ParamType):  # type: ignore[type-arg]
    """A model's name that says something: an empty one must never mean the only model there is."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not str(value).strip():
            self.fail("it is empty", param, ctx)
        return str(value)


name_argument = click.argument("name", type=ModelName())
model_option = click.option(
    "--model",
    default="",
    metavar="NAME",
    help="A pack's name, a folder or org/name (default: config's, else the only resident model).",
)
depth_option = click.option(
    "--depth", type=int, metavar="N", help="Tokens to draft a round; 0 = plain decoding."
)
force_option = click.option("--force", is_flag=True, help="Run a pack that is not verified.")
plain_option = click.option("--plain", is_flag=True, help="Decode without the head.")


def sampler_options(function: F) -> F:
    """--temperature, --top-p, --top-k, --min-p and --seed."""
    for option in reversed(
        (
            click.option("--temperature", type=float, metavar="T", help="0 = greedy."),
            click.option(
                "--top-p", type=float, metavar="P", help="Keep the likeliest tokens of mass P; 1 = off."
            ),
            click.option("--top-k", type=int, metavar="K", help="Keep the K likeliest tokens; 0 = off."),
            click.option(
                "--min-p", type=float, metavar="P", help="Drop what is below P × the likeliest; 0 = off."
            ),
            click.option("--seed", type=int, metavar="N", help="One seed, one text at the same depth."),
        )
    ):
        function = option(function)
    return function


def answer_options(function: F) -> F:
    """What generate and chat share: model, sampler, lengths, depth, head."""
    for option in reversed(
        (
            model_option,
            click.option("--system", metavar="TEXT", help="A system message before the prompt."),
            sampler_options,
            click.option("--max-tokens", type=int, metavar="N", help="Stop after N tokens."),
            click.option(
                "--stop", multiple=True, metavar="S", help="Stop before this text; may be given again."
            ),
            depth_option,
            plain_option,
            force_option,
        )
    ):
        function = option(function)
    return function
