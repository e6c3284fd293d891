"""The process edge: runs the root command, turns every failure into one line and an exit code.

Owns the exit-code table. Nothing below this file prints an error or exits by itself.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import click
from mtplxd.errors import Cancelled, FailedPrecondition, Internal, MtplxError

from mtplx_client.cli.app import App
from mtplx_client.cli.output import Output
from mtplx_client.cli.root import root
from mtplx_client.cli.usage import usage_error

COMPLETE = "_MTPLX_COMPLETE"
EXIT_CODES = {"INVALID_ARGUMENT": 2, "FAILED_PRECONDITION": 3, "UNAVAILABLE": 4, "CANCELLED": 130}
"""Exit code of a status name; 1 for all that are not here."""


def exit_code(error: MtplxError) -> int:
    """The exit code of an error."""
    return EXIT_CODES.get(error.code, 1)


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are already printed."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its log lines would land between ours
    if COMPLETE in os.environ:
        return _complete(os.environ[COMPLETE])
    args = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    app = App(output=Output(json=_asks_json(args)))
    try:
        with root.make_context("mtplx", args, obj=app) as context:
            root.invoke(context)
            sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        _silence_stdout()
        return 1
    except (KeyboardInterrupt, click.Abort):
        return _report(app, Cancelled("interrupted"))
    except click.exceptions.NoArgsIsHelpError as error:
        return _help_with(app, error)
    except click.ClickException as error:
        return _report(app, usage_error(error))
    except MtplxError as error:
        return _report(app, error)
    except OSError as error:
        return _report(app, _cannot_write(error) if _is_full(error) else _bug(app, error))
    except Exception as error:  # the edge of the process: a user never sees a traceback
        return _report(app, _bug(app, error))
    return app.exit_code


def _help_with(app: App, error: click.UsageError) -> int:
    """A group of commands by itself says which ones it has, as bare `mtplx` does; a program asked for one."""
    if app.output.json:
        return _report(app, usage_error(click.UsageError("Missing command.", error.ctx)))
    click.echo(error.message)
    return 0


def _report(app: App, error: MtplxError) -> int:
    try:
        app.output.error(error)
    except OSError:  # nobody is left to tell
        _silence_stdout()
    return exit_code(error)


def _is_full(error: OSError) -> bool:
    """Whether a stream took no more; a file that cannot be written is told where its name is known."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def _cannot_write(error: OSError) -> MtplxError:
    _silence_stdout()
    return FailedPrecondition("cannot write to standard output", error.strerror, "point it at another place")


def _open_closed_streams() -> None:
    """A stream that was closed before us (`2>&-`) reads as empty and swallows what is written."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process


def _bug(app: App, error: Exception) -> Internal:
    """The line for a bug of ours, whose traceback goes to a file."""
    import traceback

    what = f"{type(error).__name__}: {error}".splitlines()[0]
    path = app.home.logs / "mtplx-crash.log"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return Internal("mtplx failed", what, "this is a bug, please report it")
    return Internal("mtplx failed", what, f"this is a bug, please report it with {path}")


def _asks_json(args: list[str]) -> bool:
    """Whether --json is among the options, known before parsing so that usage errors honour it."""
    return "--json" in args[: args.index("--") if "--" in args else None]


def _complete(instruction: str) -> int:
    from click.shell_completion import shell_complete

    return shell_complete(root, {}, "mtplx", COMPLETE, instruction)


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain of a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
