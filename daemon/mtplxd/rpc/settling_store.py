"""What a request has to do with the disk: its own word, else its model's, else the daemon's."""

from __future__ import annotations

from mtplxd.engine.request import STORE_OFF
from mtplxd.errors import FailedPrecondition


def settle_store(asked: str | None, model: str | None, daemon: str) -> str:
    """One of `engine.request.STORES`. Raises FailedPrecondition where the daemon has no store to use."""
    chosen = asked or model or daemon
    if daemon == STORE_OFF and chosen != STORE_OFF:
        fix = "`mtplx config set store on` and start the daemon again"
        raise FailedPrecondition("the daemon's store is off", f"--store {chosen}", fix)
    return chosen
