"""`python -m support.fake_forge_daemon`: the daemon as it is, but for the steps of its builds, which need no model."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import mtplxd.daemon
from mtplxd.__main__ import main
from mtplxd.forge.foreman import Foreman
from support.fake_forge import FAKE, FakeEngine

WORKER = "support.fake_forge_worker"


def patch() -> None:
    """From now on a daemon of this process builds with quick steps."""
    daemon: Any = mtplxd.daemon
    daemon.Foreman = partial(Foreman, worker=WORKER, parts=FAKE)
    daemon.Judge = lambda *_: FakeEngine()


if __name__ == "__main__":
    patch()
    sys.exit(main())
