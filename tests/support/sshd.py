"""A real sshd on loopback for this user, with keys of its own, and an `ssh` that knows the way to it alone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 60.0
PLACES = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/opt/homebrew/sbin/sshd")


def find_sshd() -> str | None:
    """OpenSSH's server, None where there is none."""
    return shutil.which("sshd") or next((place for place in PLACES if os.access(place, os.X_OK)), None)


@dataclass(frozen=True)
class Sshd:
    """`bin` goes to the front of PATH; `port` is the server's, `host` the name that its key is known under."""

    bin: Path
    host: str
    port: int


@contextmanager
def serving_ssh(folder: Path, environment: dict[str, str]) -> Iterator[Sshd]:
    """The server; `environment` is what its sessions find beside the usual."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    port = _free_port()
    sets = " ".join(f"{name}={value}" for name, value in environment.items())
    (folder / "sshd.conf").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
        f"KbdInteractiveAuthentication no\n" + (f"SetEnv {sets}\n" if sets else "")
    )
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    (folder / "ssh.conf").write_text(
        f"Host far\n  HostName 127.0.0.1\n  Port {port}\nHost *\n  IdentityFile {folder}/user\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n  StrictHostKeyChecking yes\n"
    )
    programs = folder / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh.conf "$@"\n')
    (programs / "ssh").chmod(0o755)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # its own jail, which a service's start would make
    with open(folder / "sshd.log", "wb") as log:
        command = [str(find_sshd()), "-D", "-e", "-f", str(folder / "sshd.conf")]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await(port, server, folder / "sshd.log")
        yield Sshd(programs, "far", port)
    finally:
        server.terminate()
        server.wait(LIMIT_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    while True:
        assert server.poll() is None, log.read_text()
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
