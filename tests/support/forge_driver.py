"""`python -m support.forge_driver RUN`: one build from where it stands to its verdict, without a daemon.

Prints the verdict. It is what a test kills.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mtplxd.forge.foreman import Foreman
from mtplxd.forge.runs import Run
from mtplxd.paths import resolve_home
from support.fake_forge import FAKE, FakeEngine

WORKER = "support.fake_forge_worker"


def main() -> None:
    foreman = Foreman(resolve_home(), FakeEngine(), worker=WORKER, parts=FAKE)
    outcome = foreman.execute(Run(Path(sys.argv[1])), lambda _told: None, lambda: False)
    print(outcome.verdict, flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
