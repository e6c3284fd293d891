"""The fan helper as a process: its one file under an isolated interpreter, moving fans that do not exist."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from mtplx_launchd.helper.archive import build_archive
from mtplxd.thermal.helper import Helper, HelperGone, HelperRefused
from support.fake_smc import FakeSmc
from support.waiting import until

PATIENCE_S = 20.0


class Fand:
    """One helper on a folder. `start` again after a death: the controller's state stays."""

    def __init__(self, folder: Path, smc: FakeSmc, python: str = sys.executable) -> None:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        self.socket, self.log, self._smc, self._python = (
            folder / "fand.sock",
            folder / "fand.log",
            smc,
            python,
        )
        self._file = folder / "mtplxd-fand"
        self._file.write_bytes(build_archive())
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        options = ["--socket", str(self.socket), "--backend", "smc", "--iokit", str(self._smc.library)]
        return [self._python, "-I", "-S", "-B", str(self._file), *options]

    def spawn(self) -> None:
        """Starts it and does not wait."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command(), stderr=log, env=self._smc.environment)

    def start(self) -> Fand:
        """Starts it; returns once it has read fans as automatic, or has ended."""
        self.spawn()
        assert self.process is not None
        process = self.process

        def ready() -> bool:
            return process.poll() is not None or self.answers()

        until(ready)
        return self

    def answers(self) -> bool:
        """Whether it lives and fans are the system's."""
        client = Helper(self.socket)
        try:
            return client.status().state == "automatic"
        except (HelperGone, HelperRefused):
            return False
        finally:
            client.close()

    def kill(self) -> None:
        """kill -9."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends it; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def resident_kib(self) -> int:
        """Its resident set, on Linux."""
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])
