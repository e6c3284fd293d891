"""`python -m support.fake_forge_worker`: the worker of a build, with steps that need no model."""

from __future__ import annotations

import sys
from functools import partial

from mtplxd.forge import jobs, worker
from support.fake_forge import FAKE

if __name__ == "__main__":
    jobs.run_job = partial(jobs.run_job, parts=FAKE)
    sys.exit(worker.main())
