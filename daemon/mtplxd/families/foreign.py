"""Where mlx-lm's classes are given what a config says, or are driven: whatever they raise is said in one line.

For what a config says the pack is to blame, for what cannot be driven its family. It decides nothing of what a good
config is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mtplxd.errors import DataLoss, FailedPrecondition, MtplxError
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


@contextmanager
def blamed_on_class(model: Any) -> Iterator[None]:
    """Raises FailedPrecondition for what a class makes of being driven as bodies are here. What passes is as above."""
    try:
        yield
    except (MtplxError, RuntimeError):
        raise
    except Exception as error:  # a class that is written otherwise raises what it likes
        kind = getattr(model, "model_type", type(model).__name__)
        raise FailedPrecondition(
            "this build cannot drive the body's class",
            f"{kind}: {reason_of(error)}",
            "choose a pack of another family",
        ) from error


def reason_of(error: Exception) -> str:
    """The first line of what it says, behind its kind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
