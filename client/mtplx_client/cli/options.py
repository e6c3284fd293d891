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


class Bias(click.ParamType):  # type: ignore[type-arg]
    """`ID:V`: a token's id and what is added to its logit."""

    name = "bias"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float]:
        if isinstance(value, tuple):
            return value
        token, colon, bias = value.partition(":")
        try:
            if not (colon and token.isascii() and token.isdigit()):
                raise ValueError
            return int(token), float(bias)
        except ValueError:
            self.fail(f"{value!r} is no token id and number such as 42:-5", param, ctx)


name_argument = click.argument("name", type=ModelName())
model_option = click.option(
    "--model",
    default="",
    metavar="NAME",
    help="A pack's name, a folder or org/name (default: config's, else the only resident model).",
)


class Depth(click.ParamType):  # type: ignore[type-arg]
    """A whole number, or `auto`."""

    name = "depth"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        try:
            return "auto" if value == "auto" else int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor auto", param, ctx)


depth_option = click.option(
    "--depth",
    type=Depth(),
    metavar="auto|N",
    help="Tokens to draft a round; 0 = plain decoding, auto = chosen as the text goes.",
)


class KeepAlive(click.ParamType):  # type: ignore[type-arg]
    """`10m`, `0` or `-1`, as seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from mtplxd.config import parse_keep_alive

        if isinstance(value, float):
            return value
        try:
            return parse_keep_alive(value)
        except ValueError:
            self.fail(f"{value!r} is no time such as 10m, 0 (leave at once) or -1 (stay)", param, ctx)


keep_alive_option = click.option(
    "--keep-alive",
    "keep_alive_s",
    type=KeepAlive(),
    metavar="TIME",
    help="Idle time before the model may leave; -1 = stay.",
)
force_option = click.option("--force", is_flag=True, help="Run a pack that is not verified.")
plain_option = click.option("--plain", is_flag=True, help="Decode without the head.")
no_fans_option = click.option(
    "--no-fans", is_flag=True, help="Leave fans to the system, though the fan helper is installed."
)
store_option = click.option(
    "--store",
    type=click.Choice(["on", "write-only", "off"]),
    metavar="MODE",
    help="on takes prompts from disk and keeps them there, write-only keeps them, off does neither.",
)


def sampler_options(function: F) -> F:
    """Everything that is asked of the sampler."""
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
            click.option(
                "--presence-penalty", type=float, metavar="V", help="Against tokens it has said; 0 = off."
            ),
            click.option(
                "--frequency-penalty", type=float, metavar="V", help="The same, each time it said them."
            ),
            click.option(
                "--repetition-penalty", type=float, metavar="V", help="Against tokens so far; 1 = off."
            ),
            click.option(
                "--logit-bias",
                type=Bias(),
                multiple=True,
                callback=_by_token,
                metavar="ID:V",
                help="Add V to a token's logit; may be given again.",
            ),
            click.option("--seed", type=int, metavar="N", help="One seed, one text at any depth."),
            click.option(
                "--reproducible",
                is_flag=True,
                callback=_flag,
                help="One text bit for bit: at any depth, beside any load, after a restart.",
            ),
            click.option(
                "--acceptance",
                type=click.Choice(["token", "block", "coupled"]),
                metavar="RULE",
                help="Judge drafts by token, block or coupled; an answer with a seed is coupled unless told.",
            ),
            click.option(
                "--draft-temperature", type=float, metavar="T", help="Draft with another temperature."
            ),
            click.option("--draft-top-k", type=int, metavar="K", help="Draft with another top-k."),
        )
    ):
        function = option(function)
    return function


def structure_options(function: F) -> F:
    """What the text must match."""
    for option in reversed(
        (
            click.option("--json-schema", metavar="FILE", help="The answer is JSON of this schema."),
            click.option("--regex", metavar="R", help="The answer matches R as a whole."),
            click.option(
                "--grammar", metavar="FILE", help="The answer is of this grammar (Lark's notation)."
            ),
        )
    ):
        function = option(function)
    return function


def logprob_options(function: F) -> F:
    """How likely the text was."""
    for option in reversed(
        (
            click.option(
                "--logprobs",
                type=int,
                metavar="N",
                help="Add each token's log-probability and its N likeliest alternatives.",
            ),
            click.option(
                "--law-logprobs",
                is_flag=True,
                help="Add the log of what each token was drawn with, after filters.",
            ),
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
            click.option(
                "--session", metavar="NAME", help="Go on with this conversation, or begin it; it is kept."
            ),
            click.option(
                "--session-busy",
                type=click.Choice(["wait", "fork", "refuse"]),
                metavar="HOW",
                help="While it answers somebody else: wait (default), fork into a copy, or refuse.",
            ),
            store_option,
            keep_alive_option,
        )
    ):
        function = option(function)
    return function


def choice_options(function: F) -> F:
    """How many answers, and how soon."""
    for option in reversed(
        (
            click.option(
                "-n",
                "--n",
                "n",
                type=click.IntRange(1, 16),
                default=1,
                metavar="N",
                help="N answers to one prompt; with --seed S they have the seeds S, S+1, …",
            ),
            click.option(
                "--priority",
                type=click.Choice(["interactive", "background"]),
                metavar="WHOSE",
                help="background lets those go first who wait at a screen (default: interactive).",
            ),
        )
    ):
        function = option(function)
    return function


def _by_token(
    ctx: click.Context, param: click.Parameter, value: tuple[tuple[int, float], ...]
) -> dict[int, float] | None:
    tokens = [token for token, _ in value]
    for token in tokens:
        if tokens.count(token) > 1:
            raise click.BadParameter(f"token {token} is given twice", ctx, param)
    return dict(value) or None


def _flag(ctx: click.Context, param: click.Parameter, value: bool) -> bool | None:
    """True, or None for a flag that was not given."""
    del ctx, param
    return value or None
