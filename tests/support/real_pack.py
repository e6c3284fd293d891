"""Pulls the real model into `MTPLXD_HOME` as a user would: daemon, `mtplx pull`, `mtplx stop`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "smollm2-135m"


def pull() -> None:
    """Raises CalledProcessError when any step fails; what it said is on stderr."""
    scripts = Path(sys.executable).parent
    with tempfile.TemporaryDirectory(prefix="mtplx-", dir="/tmp") as folder:
        environment = {**os.environ, "MTPLXD_SOCKET": str(Path(folder, "s"))}
        with subprocess.Popen(
            [scripts / "mtplxd"], env=environment, stdout=subprocess.PIPE, text=True
        ) as daemon:
            try:
                assert daemon.stdout is not None
                if not daemon.stdout.readline().startswith("ready "):
                    raise SystemExit("error: the daemon did not start: see its line above")
                subprocess.run([scripts / "mtplx", "pull", NAME], env=environment, check=True)
            finally:
                daemon.terminate()


if __name__ == "__main__":
    pull()
