"""The two kinds of commands: a leaf that works and a branch of leaves.

Owns the global options (valid before and after the subcommand), the form of help with its examples, and the
search for a misspelt command. Knows no single command.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import click

from mtplx_client.cli.app import App
from mtplx_client.cli.usage import no_such_command

_NO_OPTION = re.compile(r"-[\d\s.]")
"""How a word begins that is a value though it begins with a dash: a negative number, an item of a list."""


def leaf(name: str, *examples: str) -> Callable[[Callable[..., Any]], Leaf]:
    """Make a function a command; `examples` are command lines without the leading `mtplx`."""

    def decorate(function: Callable[..., Any]) -> Leaf:
        command = click.command(name, cls=Leaf)(function)
        command.examples = examples
        return command

    return decorate


class Leaf(click.Command):
    """A command that does something."""

    examples: Sequence[str] = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *GLOBAL_OPTIONS]

    def make_parser(self, ctx: click.Context) -> Any:
        """click's own, which takes a negative number for an argument and not for an option."""
        parser: Any = super().make_parser(ctx)
        process = parser._process_opts

        def take(word: str, state: Any) -> None:
            if _NO_OPTION.match(word):
                state.largs.append(word)
            else:
                process(word, state)

        parser._process_opts = take
        return parser

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(ctx, formatter, super().get_params(ctx))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        write_examples(formatter, self.examples)


class Branch(click.Group):
    """A command that only holds others."""

    command_class = Leaf

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *GLOBAL_OPTIONS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        _write_options(ctx, formatter, super().get_params(ctx))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise no_such_command(args[0], self.list_commands(ctx), ctx)
        return super().resolve_command(ctx, args)


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """A time above 0."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            self.fail(f"{value!r} is no number of seconds above 0", param, ctx)
        return seconds


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """The block of examples at the end of a help text."""
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{' ' * formatter.current_indent}mtplx {example}\n")


def _global_options() -> list[click.Parameter]:
    return [
        _option("--socket", "socket", "The daemon's socket.", metavar="PATH"),
        _option("--home", "home_flag", "The daemon's folder (default: ~/.mtplxd).", metavar="DIR"),
        _option("--timeout", "timeout", "Give up after S seconds.", type=Seconds(), metavar="S"),
        _option("--json", "", "Write JSON for programs.", is_flag=True),
        _option("--no-color", "no_color", "Write without colour.", is_flag=True),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        ),
    ]


def _write_options(
    ctx: click.Context, formatter: click.HelpFormatter, own: Sequence[click.Parameter]
) -> None:
    help_option = ctx.command.get_help_option(ctx)
    shared = [*GLOBAL_OPTIONS, *([help_option] if help_option else [])]
    own_options = [param for param in own if isinstance(param, click.Option) and param is not help_option]
    for title, params in (("Options", own_options), ("Global options", shared)):
        rows = [param.get_help_record(ctx) for param in params]
        kept = [row for row in rows if row is not None]
        if kept:
            with formatter.section(title):
                formatter.write_dl(kept)


def _option(name: str, attribute: str, text: str, **more: Any) -> click.Option:
    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        del param
        if attribute and value not in (None, False):
            setattr(ctx.find_object(App), attribute, value)

    return click.Option([name], expose_value=False, callback=store, help=text, **more)


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if not value or ctx.resilient_parsing:
        return
    from mtplxd import PROTOCOL, __version__

    app = ctx.find_object(App)
    if app is not None and app.json:
        app.output.document({"version": __version__, "protocol": PROTOCOL})
    else:
        click.echo(f"mtplx {__version__}")
    ctx.exit()


GLOBAL_OPTIONS = _global_options()
"""Options that every command takes; each puts its value into the run's App."""
