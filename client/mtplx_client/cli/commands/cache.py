"""`mtplx cache`: what is kept on disk of prompts that were read, looked at, checked, trimmed and wiped."""

from __future__ import annotations

import click

from mtplx_client.cli.app import App, pass_app
from mtplx_client.cli.shape import Branch, leaf


@click.group("cache", cls=Branch)
def cache() -> None:
    """What is kept on disk of prompts, so that none is read twice."""


@leaf("stats", "cache stats", "cache stats --json")
@pass_app
def stats(app: App, /) -> None:
    """Show what is kept, how often it was of use, and why it was not."""
    from mtplx_client.cli.render import kept

    with app.client() as client:
        found = client.cache_stats()
    if app.json:
        app.output.document({"cache": kept.document(found)})
    else:
        app.output.line(kept.lines(found))


@leaf("verify", "cache verify", "cache verify --json")
@pass_app
def verify(app: App, /) -> None:
    """Read every block and check it; a damaged one is set aside, and computed again when it is needed."""
    from mtplx_client.cli.progress import reporter
    from mtplx_client.cli.render import kept
    from mtplx_client.cli.render.words import size
    from mtplx_client.errors import FailedPrecondition

    with app.client() as client:
        with reporter(app) as progress:
            found = client.cache_verify(on_progress=progress)
        now = client.cache_stats()
    if app.json:
        checked = {"blocks": found.blocks, "bytes": found.bytes, "bad": found.bad}
        app.output.final({"cache": kept.document(now), "verified": checked})
    elif not found.bad:
        app.output.line(f"{found.blocks} blocks are as they were written, {size(found.bytes)}")
    if found.bad:
        what = "blocks on disk were damaged"
        app.fail(
            FailedPrecondition(what, f"{found.bad} of {found.blocks}", "they were set aside: see the disk")
        )


@leaf("prune", "cache prune")
@pass_app
def prune(app: App, /) -> None:
    """Remove what nobody can use any more, and what is over the limits."""
    from mtplx_client.cli.render import kept
    from mtplx_client.cli.render.words import size

    with app.client() as client:
        freed = client.cache_prune()
        now = client.cache_stats()
    if app.json:
        app.output.document({"cache": kept.document(now), "bytes_freed": freed.bytes_freed})
    else:
        app.output.line(f"{size(freed.bytes_freed)} freed, {size(now.bytes)} kept")


@leaf("clear", "cache clear", "cache clear --sessions --yes")
@click.option("--sessions", is_flag=True, help="Delete every session too: nothing that was said is left.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_app
def clear(app: App, /, sessions: bool, yes: bool) -> None:
    """Wipe what is kept of prompts, on disk and in memory. Sessions stay, unless --sessions is given."""
    from mtplx_client.cli.asking import confirm
    from mtplx_client.cli.render import kept
    from mtplx_client.cli.render.words import counted, size

    with app.client() as client:
        if not yes:
            before = client.cache_stats()
            also = f" and {counted(before.sessions, 'session')}" if sessions else ""
            confirm(f"Delete {counted(before.blocks, 'block')} ({size(before.bytes)}){also}?")
        freed = client.cache_clear(sessions=sessions)
        now = client.cache_stats()
    if app.json:
        app.output.document(
            {"cache": kept.document(now), "bytes_freed": freed.bytes_freed, "sessions": freed.sessions}
        )
    else:
        also = f", {counted(freed.sessions, 'session')} deleted" if sessions else ""
        app.output.line(f"{size(freed.bytes_freed)} freed{also}")


for _command in (stats, verify, prune, clear):
    cache.add_command(_command)
