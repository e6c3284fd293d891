"""The doctor's judgement of facts. Pure: no file, process or clock is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtplx_client.doctor.probes import Probe

OLDEST_PYTHON = (3, 11)
OLDEST_MACOS = 14
SPARE_MEMORY = 512 << 20
"""Bytes that serving takes beside the weights."""
_GIB = 1 << 30


@dataclass(frozen=True)
class Check:
    """One result; `fix` says what to do when it is not ok."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def judge_python(version: tuple[int, int]) -> Check:
    """The interpreter's version."""
    shown = ".".join(map(str, version))
    return Check("python", version >= OLDEST_PYTHON, shown, "install Python 3.11 or newer")


def judge_machine(probe: Probe) -> Check:
    """macOS 14 or newer on Apple silicon, not under Rosetta; Linux as it is."""
    facts = probe.found
    if not facts:
        return Check("machine", False, probe.error, "install mtplxd again")
    shown = f"{facts['chip']}, {facts['arch']}, {facts['os']}"
    if not facts["macos"]:
        return Check("machine", True, shown)
    if facts["rosetta"]:
        return Check(
            "machine", False, f"{shown}, under Rosetta", "install an arm64 Python, not an x86-64 one"
        )
    if facts["arch"] != "arm64":
        return Check("machine", False, shown, "use a Mac with Apple silicon")
    major = facts["macos"].split(".")[0]
    new_enough = major.isdigit() and int(major) >= OLDEST_MACOS
    return Check("machine", new_enough, shown, f"update to macOS {OLDEST_MACOS} or newer")


def judge_mlx(probe: Probe) -> Check:
    """Whether the daemon can import mlx."""
    if not probe.found:
        return Check("mlx", False, f"cannot be imported: {probe.error}", "pip install --force-reinstall mlx")
    return Check("mlx", True, f"{probe.found['version']}, {probe.found['device']}")


def judge_blas(probe: Probe) -> Check:
    """Whether matrix products are fast."""
    facts = probe.found
    if not facts:
        return Check("blas", False, probe.error, "set MTPLXD_BLAS to a library, or to auto")
    shown = " ".join(part for part in (facts["name"], facts["path"]) if part)
    fix = "apt-get install libopenblas0, or pip install 'mtplxd[blas]'"
    return Check("blas", facts["name"] != "reference", shown, fix)


def judge_space(name: str, free: int, needed: int, where: str, fix: str) -> Check:
    """Whether `free` bytes are enough for `needed`."""
    detail = f"{free / _GIB:.1f} GiB free {where}, {needed / _GIB:.1f} GiB needed"
    return Check(name, free >= needed, detail, fix)


def judge_store(mode: str, folder: str, free: int, floor: int, troubles: Sequence[str]) -> Check:
    """Whether prompts can be kept on disk, and are their owner's alone there; `free` and `floor` are bytes."""
    if mode == "off":
        return Check("store", True, "off: prompts are kept in memory alone")
    if troubles:
        fix = f"start the daemon, which closes it; or chmod 700 {folder}"
        return Check("store", False, f"{folder}: {', '.join(troubles)}", fix)
    detail = f"{mode}, {folder}, {free / _GIB:.1f} GiB free, stops below {floor / _GIB:.1f}"
    fix = "free some space, or lower `mtplx config set store_free_floor SIZE`"
    return Check("store", free >= floor, detail, fix)


def needed_memory(bytes_body: int, bytes_head: int, widened: bool) -> int:
    """Bytes to serve a pack; `widened` = the CPU computes in float32 what is stored in 16 bits."""
    return (bytes_body + bytes_head) * (2 if widened else 1) + SPARE_MEMORY


def judge_interpreter(executable: str, exists: bool, script: Mapping[str, Any] | None) -> Check:
    """Whether the environment that runs us, and the `mtplxd` script in it, are whole."""
    fix = "make the virtual environment again (`make demo` in the clone, or pip install mtplxd)"
    if not exists:
        return Check("interpreter", False, f"{executable} is gone", fix)
    if script is None:
        return Check("interpreter", False, f"no mtplxd beside {executable}", fix)
    if not script["interpreter_exists"]:
        return Check(
            "interpreter", False, f"{script['path']} runs {script['interpreter']}, which is gone", fix
        )
    return Check("interpreter", True, executable)
