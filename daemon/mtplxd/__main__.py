"""`mtplxd`: reads the command line, claims the socket, runs the daemon in the foreground."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from mtplxd import __version__
from mtplxd.config import Settings, settle_settings
from mtplxd.errors import FailedPrecondition, InvalidArgument, MtplxError, Unavailable
from mtplxd.paths import Home, resolve_home

EXIT_CODES: dict[type[MtplxError], int] = {InvalidArgument: 2, FailedPrecondition: 3, Unavailable: 4}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon until it is stopped. One line on stderr where it cannot start."""
    options = _parser().parse_args(arguments)
    try:
        home = resolve_home(options.home)
        flags = {name: getattr(options, name) for name in ("socket", "memory_budget", "drain_s")}
        flags["preload"] = ",".join(options.preload) or None
        settings = settle_settings(home, flags)
        for warning in settings.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        return _run(home, settings)
    except MtplxError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODES.get(type(error), 1)
    except OSError as error:  # a disk that is full or gone; what is foreseen has a sentence of its own
        print(f"error: cannot start ({error}): check disk, home and socket", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(home: Home, settings: Settings) -> int:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # C core writes to stderr before any logger
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it has a way of its own to the terminal
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # children are exec'd, never forked on
    import asyncio

    from mtplxd.daemon import leave, serve
    from mtplxd.logs import bound_errors, start_logging
    from mtplxd.platform.boot import boot_id
    from mtplxd.rpc.calls import request_id
    from mtplxd.rpc.sockets import SocketClaim
    from mtplxd.starts import Starts, keep_failure

    home.create()
    claim = SocketClaim(settings.socket, home.root)
    starts = Starts(home)
    try:
        doubt = starts.begin(os.getpid(), __version__, boot_id())
        bound_errors()
        start_logging(home.logs, settings.log_level, request_id.get)
        code = asyncio.run(serve(home, settings, claim, starts.ready, doubt))
        if code == 0:
            starts.end_well()
    except (MtplxError, OSError) as error:
        keep_failure(home, f"mtplxd {__version__} did not come up: {error}")
        raise
    finally:
        claim.release()
    leave(code)
    return code


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line as every other error is said: in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}: see `mtplxd --help`\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mtplxd",
        description="Keeps language models warm and serves them on a Unix socket, in the foreground.",
        epilog="example: mtplxd --preload smollm2-135m --memory-budget 16G",
        allow_abbrev=False,
    )
    parser.add_argument("--home", metavar="DIR", help="its folder (MTPLXD_HOME, else ~/.mtplxd)")
    parser.add_argument("--socket", metavar="PATH", help="its socket (else run/mtplxd.sock in its home)")
    parser.add_argument(
        "--preload", metavar="MODEL", action="append", default=[], help="load this model at once; repeatable"
    )
    parser.add_argument("--memory-budget", metavar="SIZE", help="what it may use, such as 16G")
    parser.add_argument("--drain-s", metavar="N", help="seconds that answers may take to end when it stops")
    parser.add_argument("--version", action="version", version=f"mtplxd {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
