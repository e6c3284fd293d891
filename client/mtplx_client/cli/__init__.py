"""The `mtplx` command line.

Owns arguments, output and exit codes. Rooms: `commands` (what each command does), `render` (documents, lines
and tables, without commands). It never talks gRPC itself; that is `mtplx_client.Client`.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with `argv` (default: the process's) and return its exit code."""
    from mtplx_client.cli.edge import run

    return run(argv)
