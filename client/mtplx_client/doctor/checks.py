"""The doctor's list of checks: gathers each fact and hands it to its verdict."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mtplxd.config import Settings, survey_settings
from mtplxd.errors import MtplxError
from mtplxd.paths import Home

from mtplx_client.doctor import verdicts
from mtplx_client.doctor.helper import check_helper
from mtplx_client.doctor.probes import Probe, probe
from mtplx_client.doctor.verdicts import Check

DEFAULT_MODEL = "smollm2-135m"
_DEFAULT_BYTES = (269 << 20, 10 << 20)
"""Body and head of the default model while it is not on the disk yet."""


def run_checks(home: Home, socket: str | None, timeout: float | None) -> Iterator[Check]:
    """Every check in the order in which they matter. Nothing is raised."""
    yield verdicts.judge_python((sys.version_info.major, sys.version_info.minor))
    yield _interpreter()
    machine = probe("machine")
    yield verdicts.judge_machine(machine)
    yield verdicts.judge_mlx(probe("mlx"))
    settings, found = _settings(home, socket)
    yield found
    if sys.platform == "linux":
        yield verdicts.judge_blas(probe("blas", settings.blas))
    yield _disk(home)
    yield _store(home, settings)
    yield _memory(home, settings, machine)
    yield _folder(settings)
    yield _daemon(settings, timeout)
    yield check_helper()


def _settings(home: Home, socket: str | None) -> tuple[Settings, Check]:
    """What the other checks go on with, defaults for what cannot be read, and the check of it."""
    settings, bad = survey_settings(home, {"socket": socket})
    if bad:
        detail = "; ".join(f"{error.what} ({error.value})" for error in bad)
        return settings, Check("settings", False, detail, "; ".join(error.fix for error in bad))
    warnings = "; ".join(settings.warnings)
    check = Check("settings", not warnings, warnings or str(home.config_file), "see `mtplx config get`")
    return settings, check


def _interpreter() -> Check:
    executable = Path(sys.executable)
    script = executable.with_name("mtplxd")
    facts: dict[str, Any] | None = None
    if script.is_file():
        first = script.read_bytes()[:512].splitlines()[:1]
        runs = first[0][2:].decode(errors="replace").strip() if first and first[0].startswith(b"#!") else ""
        interpreter = runs.split()[0] if runs else str(executable)
        facts = {"path": script, "interpreter": interpreter, "interpreter_exists": Path(interpreter).exists()}
    return verdicts.judge_interpreter(str(executable), executable.exists(), facts)


def _disk(home: Home) -> Check:
    from mtplxd.packs.catalogue import SOURCES

    place = _nearest(home.root)
    needed = SOURCES[DEFAULT_MODEL].space
    if (home.packs / DEFAULT_MODEL).is_dir():
        needed = 0
    fix = "free some space, or choose another disk with --home"
    return verdicts.judge_space("disk", shutil.disk_usage(place).free, needed, f"at {place}", fix)


def _store(home: Home, settings: Settings) -> Check:
    troubles = () if settings.store == "off" else probe("privacy", str(home.store)).found.get("troubles", ())
    free = shutil.disk_usage(_nearest(home.store)).free
    return verdicts.judge_store(
        settings.store, str(home.store), free, settings.store_free_floor, tuple(troubles)
    )


def _nearest(place: Path) -> Path:
    """The folder itself, else the nearest one above it that is there."""
    while not place.exists():
        place = place.parent
    return place


def _memory(home: Home, settings: Settings, machine: Probe) -> Check:
    total = machine.found.get("memory", 0)
    if not total:
        return Check("memory", True, "size of this machine's memory is unknown")
    name = settings.model or DEFAULT_MODEL
    body, head = _DEFAULT_BYTES
    try:
        from mtplxd.packs.resolver import resolve

        pack = resolve(name, home)
        body, head = pack.bytes_body, pack.bytes_head
    except MtplxError:
        if name != DEFAULT_MODEL:
            return Check("memory", True, f"{name} is not on the disk, its needs are unknown")
    needed = verdicts.needed_memory(body, head, widened=sys.platform == "linux")
    fix = "choose a smaller model with `mtplx config set model NAME`"
    return verdicts.judge_space("memory", total, needed, f"at most for {name}", fix)


def _folder(settings: Settings) -> Check:
    from mtplx_client.errors import NoDaemon
    from mtplx_client.folder import check_folder, check_path

    try:
        check_path(settings.socket)
        check_folder(settings.socket)
    except NoDaemon:
        return Check("socket", True, f"{settings.socket.parent} is not made yet")
    except MtplxError as error:
        return Check("socket", False, f"{error.what} ({error.value})", error.fix)
    return Check("socket", True, f"{settings.socket.parent} is yours alone")


def _daemon(settings: Settings, timeout: float | None) -> Check:
    from mtplxd import __version__

    from mtplx_client.client import Client
    from mtplx_client.errors import NoDaemon

    start = "start one with `mtplxd` or `mtplx quickstart`"
    if not os.path.lexists(settings.socket):
        return Check("daemon", True, f"none is running: {start}")
    try:
        with Client(settings.socket, timeout=timeout or 5.0) as client:
            found = client.status()
    except NoDaemon:
        return Check("daemon", True, f"none is running, its socket is left over: {start}")
    except MtplxError as error:
        return Check("daemon", False, f"{error.what} ({error.value})", error.fix)
    detail = f"mtplxd {found.version}, {found.state}, pid {found.pid}"
    same = found.version == __version__
    return Check("daemon", same, detail, f"restart it: this client is {__version__}")
