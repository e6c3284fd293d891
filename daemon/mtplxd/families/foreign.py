"""Where mlx-lm's classes are given what a config says: whatever they raise for it is the pack's fault, in one line.

It decides nothing of what a good config is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mtplxd.errors import DataLoss, MtplxError
from mtplxd.packs.contents import AGAIN


@contextmanager
def blamed_on_config(what: str) -> Iterator[None]:
    """Raises DataLoss (`what`, with the reason) for what foreign code makes of a config.

    Our own refusals pass, and RuntimeError: memory that ran out is no fault of the files.
    """
    try:
        yield
    except (MtplxError, RuntimeError):
        raise
    except Exception as error:  # a config that makes no model makes foreign code raise what it likes
        raise DataLoss(what, reason_of(error), AGAIN) from error


def reason_of(error: Exception) -> str:
    """The first line of what it says, behind its kind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
