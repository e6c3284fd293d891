"""What one run of the command line knows: the global options, and what they resolve to.

Owns nothing that a command does; it opens the client only when a command asks for it.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtplx_client.cli.output import Output

if TYPE_CHECKING:
    from mtplxd.config import Settings
    from mtplxd.errors import MtplxError
    from mtplxd.paths import Home

    from mtplx_client.client import Client
    from mtplx_client.remote import Link


REMOTE = "ssh://"
"""How a socket of another machine begins."""


@dataclass
class App:
    """One run. `socket`, `home` and `timeout` are the options as given, None when absent."""

    output: Output
    socket: str | None = None
    home_flag: str | None = None
    timeout: float | None = None
    no_color: bool = False
    exit_code: int = 0

    @property
    def json(self) -> bool:
        """Whether stdout is for a program."""
        return self.output.json

    @cached_property
    def home(self) -> Home:
        """The daemon's home folder."""
        from mtplxd.paths import resolve_home

        return resolve_home(self.home_flag)

    @cached_property
    def settings(self) -> Settings:
        """The effective settings; a doubtful one is warned of once."""
        from mtplxd.config import resolve_settings

        settings = resolve_settings(self.home, {"socket": None if self.remote else self.socket})
        for warning in settings.warnings:
            self.output.note(f"warning: {warning}")
        return settings

    @property
    def remote(self) -> bool:
        """Whether the daemon is another machine's."""
        return self.socket is not None and self.socket.startswith(REMOTE)

    @cached_property
    def link(self) -> Link | None:
        """The way to another machine's daemon, open until this run ends; None where it is ours."""
        if not self.remote or self.socket is None:
            return None
        from mtplx_client.remote import WAIT_S, Link

        link = Link(self.socket, self.timeout or WAIT_S, may_ask=False if self.json else None)
        click.get_current_context().find_root().call_on_close(link.close)
        return link

    @property
    def socket_path(self) -> Path:
        """The daemon's socket, or our end of the way to it."""
        return self.settings.socket if self.link is None else self.link.socket

    @property
    def socket_name(self) -> str:
        """The daemon's socket as it is told."""
        return str(self.socket) if self.remote else str(self.socket_path)

    def local_home(self, command: str) -> Home:
        """The home, for a command that looks at files of this machine. Raises InvalidArgument for a remote daemon."""
        from mtplxd.errors import InvalidArgument

        if self.remote:
            fix = f"run `mtplx {command}` on that machine"
            raise InvalidArgument(
                "this command works on this machine's files", self.socket, fix, field="socket"
            )
        return self.home

    def client(self, reconnect_s: float = 5.0) -> AbstractContextManager[Client]:
        """A client of the chosen daemon, for a `with` block."""
        from mtplx_client.client import Client

        return Client(
            self.socket_path, timeout=self.timeout, reconnect_s=reconnect_s, on_silence=self.output.note
        )

    def fail(self, error: MtplxError) -> None:
        """Tell of an answer that ended badly after its document was written, and exit accordingly."""
        from mtplx_client.cli.edge import exit_code

        self.output.note(f"error: {error}")
        self.exit_code = exit_code(error)

    @property
    def color(self) -> bool:
        """Whether colour is wanted; a file or pipe never gets any."""
        import os

        return not (self.no_color or os.environ.get("NO_COLOR")) and sys.stdout.isatty()


pass_app = click.make_pass_decorator(App)
"""Hands the command its App as the first argument."""
