"""`mtplx sessions`: named conversations, listed, shown, renamed, exported and deleted."""

from __future__ import annotations

import os
from typing import Any

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import Branch, leaf

FORMATS = ("markdown", "json")


class SessionName(click.ParamType):  # type: ignore[type-arg]
    """A session's name; which ones there can be is the daemon's to say."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not str(value).strip():
            self.fail("it is empty", param, ctx)
        return str(value)


session_argument = click.argument("name", type=SessionName())


@click.group("sessions", cls=Branch)
def sessions() -> None:
    """Named conversations: `mtplx chat --session NAME` begins one, or goes on with it."""


@leaf("ls", "sessions ls", "sessions ls --json")
@pass_app
def ls(app: App, /) -> None:
    """List the sessions, the latest used first."""
    from mtplx_client.cli.render import talks

    with app.client() as client:
        found = client.sessions()
    if app.json:
        app.output.document({"sessions": [talks.document(session) for session in found]})
    else:
        app.output.line(talks.table_of(found, app.color))


@leaf("show", "sessions show work", "sessions show work --json")
@session_argument
@pass_app
def show(app: App, /, name: str) -> None:
    """Show the session NAME: its numbers and all that was said."""
    from mtplx_client.cli.render import talks

    with app.client() as client:
        found = client.session(name)
    if app.json:
        app.output.document(talks.whole_document(found))
    else:
        app.output.line(talks.shown(found))


@leaf("rename", "sessions rename work holidays")
@session_argument
@click.argument("to", type=SessionName())
@pass_app
def rename(app: App, /, name: str, to: str) -> None:
    """Give the session NAME the name TO."""
    from mtplx_client.cli.render import talks

    with app.client() as client:
        renamed = client.rename_session(name, to)
    if app.json:
        app.output.document({"sessions": [talks.document(renamed)]})
    else:
        app.output.line(f"{name} is {renamed.name} now")


@leaf(
    "export",
    "sessions export work > work.md",
    "sessions export work --output work.md",
    "sessions export work --format json --output work.json",
)
@session_argument
@click.option("--format", "form", type=click.Choice(FORMATS), default="markdown", help="Default: markdown.")
@click.option("--output", "file", metavar="FILE", help="Write to FILE, which must not be there yet.")
@pass_app
def export(app: App, /, name: str, form: str, file: str | None) -> None:
    """Write the session NAME as Markdown to read, or as JSON with token ids, samplers and numbers."""
    from mtplx_client.cli.render import talks

    with app.client() as client:
        found = client.session(name)
    text = talks.as_json(found) if form == "json" else talks.markdown(found)
    if file is not None:
        _write_new(os.path.expanduser(file), text)
    if app.json:
        app.output.document({**talks.whole_document(found), "path": file})
    elif file is not None:
        app.output.line(f"{len(found.messages)} messages written to {file}")
    else:
        app.output.text(text)


@leaf("rm", "sessions rm work", "sessions rm work --yes")
@session_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_app
def rm(app: App, /, name: str, yes: bool) -> None:
    """Delete the session NAME, and what the store keeps for it alone."""
    from mtplx_client.cli.asking import confirm
    from mtplx_client.cli.render import talks
    from mtplx_client.cli.render.words import counted, size

    with app.client() as client:
        if not yes:
            found = client.session(name).session
            confirm(f"Delete the session {found.name} ({counted(found.turns, 'turn')}, {size(found.bytes)})?")
        gone = client.remove_session(name)
    if app.json:
        app.output.document({"sessions": [talks.document(gone.session)], "bytes_freed": gone.bytes_freed})
    else:
        app.output.line(f"{gone.session.name} is gone, {size(gone.bytes_freed)} freed")


def _write_new(path: str, text: str) -> None:
    """Only its owner reads it. Raises FailedPrecondition where there is something already, or nothing can be."""
    from mtplx_client.errors import FailedPrecondition

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise FailedPrecondition("there is something already", path, "give another name") from None
    except OSError as error:
        raise FailedPrecondition("cannot write", path, error.strerror or "choose another file") from None


for _command in (ls, show, rename, export, rm):
    sessions.add_command(_command)
