"""`mtplxd-fand`: reads its command line, takes lock and socket, and holds fans until it is told to end."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from .binding import DEFAULT_SOCKET, CannotServe, claim, listen, make_folder
from .fans import Backend
from .hwmon import HWMON, HwmonFans
from .keeper import Keeper
from .server import Server
from .smc import IOKIT, Smc
from .smc_fans import SmcFans


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT: 0 where fans were automatic then, 1 where not or where it cannot start."""
    options = _parser().parse_args(arguments)
    path = Path(options.socket)
    try:
        make_folder(path.parent)
        lock = claim(path.parent)
        listener = listen(path, options.uid)
    except (CannotServe, OSError) as error:
        print(f"error: mtplxd-fand cannot start: {error}", file=sys.stderr)
        return 1
    keeper = Keeper(_backend(options, path.parent), log)
    server = Server(listener, keeper, frozenset({options.uid}), log)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    log(f"ready, pid {os.getpid()}, socket {path}, user {options.uid}")
    automatic = server.run()
    path.unlink(missing_ok=True)
    os.close(lock)
    log("ended" if automatic else "ended while fans were not automatic")
    return 0 if automatic else 1


def log(text: str) -> None:
    """One line, for launchd's or systemd's log. It tells of changes only, so it stays small."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with contextlib.suppress(OSError):  # the log's disk is full: fans matter more
        print(f"{stamp} {text}", file=sys.stderr, flush=True)


def _backend(options: argparse.Namespace, folder: Path) -> Backend:
    kind = options.backend
    if kind == "auto":
        kind = "smc" if sys.platform == "darwin" else "hwmon"
    if kind == "smc":
        return SmcFans(Smc(options.iokit))
    return HwmonFans(Path(options.hwmon), folder / "hwmon.json")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mtplxd-fand",
        description="Holds fans at their maximum while a client renews a lease, and gives them back otherwise.",
        allow_abbrev=False,
    )
    parser.add_argument("--socket", metavar="PATH", default=DEFAULT_SOCKET, help="its socket")
    parser.add_argument(
        "--uid", metavar="N", type=int, default=os.getuid(), help="who may hold fans, beside root"
    )
    parser.add_argument("--backend", choices=("auto", "smc", "hwmon"), default="auto")
    parser.add_argument("--iokit", metavar="PATH", default=IOKIT, help="the IOKit library")
    parser.add_argument("--hwmon", metavar="DIR", default=HWMON, help="the folder of Linux' fan drivers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
