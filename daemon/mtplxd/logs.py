"""The daemon's log files: bounded, for the owner alone, with request ids. Nobody logs prompt or answer text.

What goes into a record is each room's; this only says where records go and what other libraries may add.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import stat
import sys
import threading
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

FILE_NAME = "mtplxd.log"
FILE_BYTES, OLD_FILES = 4 << 20, 4
"""At most FILE_BYTES × (1 + OLD_FILES) bytes of log in all."""
ERRORS_BYTES = 1 << 20
"""Of what a service lets standard error grow to."""
FAULTS_NAME = "mtplxd-faults.log"
_FORMAT = "%(asctime)s %(levelname)s %(name)s [%(request)s] %(message)s"
_QUIET = ("grpc", "asyncio", "urllib3", "transformers", "huggingface_hub", "filelock", "httpx", "httpcore")

log = logging.getLogger(__name__)


class PrivateRotatingFile(RotatingFileHandler):
    """Rotates by size; every file is made with mode 0600."""

    def _open(self) -> Any:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return open(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def start_logging(folder: Path, level: str, request_id: Callable[[], str]) -> None:
    """Sends every record of the process to `folder`; `request_id` names the call a record belongs to."""
    handler = PrivateRotatingFile(folder / FILE_NAME, maxBytes=FILE_BYTES, backupCount=OLD_FILES)
    handler.setFormatter(logging.Formatter(_FORMAT))

    def name_request(record: logging.LogRecord) -> bool:
        record.request = request_id()
        return True

    handler.addFilter(name_request)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a full disk must not write tracebacks to the terminal
    _catch_the_uncaught(folder)


def bound_errors(limit: int = ERRORS_BYTES) -> None:
    """Begins standard error anew where it is a file that grew: whoever keeps the daemon running never rotates it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = os.fstat(sys.stderr.fileno())
        if stat.S_ISREG(found.st_mode) and found.st_size > limit:
            os.ftruncate(sys.stderr.fileno(), 0)


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG001
    """The loop's exception handler: to the log only."""
    log.error("event loop: %s", context.get("message"), exc_info=context.get("exception"))


def _catch_the_uncaught(folder: Path) -> None:
    def in_thread(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "?"
        error = args.exc_value or args.exc_type()
        log.critical("thread %s died", name, exc_info=error)

    def anywhere(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        log.critical("the daemon died", exc_info=(kind, error, trace))
        with contextlib.suppress(OSError, ValueError, AttributeError):  # whoever started it may not listen
            print(f"error: the daemon died ({kind.__name__}): see {folder / FILE_NAME}", file=sys.stderr)

    threading.excepthook = in_thread
    sys.excepthook = anywhere
    descriptor = os.open(folder / FAULTS_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    faulthandler.enable(os.fdopen(descriptor, "w"))
