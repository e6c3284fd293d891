"""Turns click's complaints about the command line into our one-line errors, with the nearest spelling."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click
from mtplxd.errors import InvalidArgument


def usage_error(error: click.ClickException) -> InvalidArgument:
    """The typed error of a wrong command line."""
    context = getattr(error, "ctx", None)
    see = f"see `{context.command_path if context else 'mtplx'} --help`"
    if isinstance(error, click.NoSuchOption):
        known = (name for name in _option_names(context) if name.startswith("--"))
        return InvalidArgument("no such option", error.option_name, nearest(error.option_name, known) or see)
    if isinstance(error, click.MissingParameter):
        return InvalidArgument(f"{_name(error, context)} is missing", None, see)
    if isinstance(error, click.BadParameter):
        return InvalidArgument(f"bad value for {_name(error, context)}", error.message.rstrip("."), see)
    said = error.format_message().rstrip(".")
    return InvalidArgument(said[:1].lower() + said[1:], None, see)


def no_such_command(name: str, known: Iterable[str], context: click.Context) -> InvalidArgument:
    """The typed error of an unknown command."""
    see = f"see `{context.command_path} --help`"
    return InvalidArgument("no such command", name, nearest(name, known) or see)


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean …?` for the closest known names, empty when none is close."""
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else ""


def _option_names(context: click.Context | None) -> list[str]:
    if context is None:
        return []
    return [name for param in context.command.get_params(context) for name in param.opts]


def _name(error: click.BadParameter, context: click.Context | None) -> str:
    if error.param is None or context is None:
        return error.param_hint if isinstance(error.param_hint, str) else "an argument"
    if isinstance(error.param, click.Option):
        return error.param.opts[-1]
    return error.param.make_metavar(context)
