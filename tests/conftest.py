"""What holds for every test: a run started in the background ignores Ctrl-C, and its children would inherit that.

Where several processes share the tests, each of them multiplies matrices on one core, and so do the daemons it starts.
Drawn examples are the same in every run. Workers that a test has started find the modules of `support` as it does.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:  # before BLAS is loaded, which looks once
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
)

signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("the same in every run", deadline=None, derandomize=True, database=None)
settings.load_profile("the same in every run")
