"""Asks before something is deleted. What is deleted is the command's."""

from __future__ import annotations

import sys

import click
from mtplxd.errors import Cancelled, InvalidArgument


def confirm(question: str) -> None:
    """Ask on the terminal. Raises Cancelled for no, InvalidArgument where nobody can be asked."""
    if not _on_terminal():
        raise InvalidArgument("nobody can be asked", "no terminal", "add --yes to delete without asking")
    if not click.confirm(question, err=True):
        raise Cancelled("nothing was deleted")


def _on_terminal() -> bool:
    return sys.stdin.isatty()
