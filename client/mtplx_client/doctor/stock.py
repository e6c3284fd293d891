"""What is kept: the packs with their tiers, and the file of the sessions. Reads headers and changes nothing."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

from mtplxd.packs.remembered import keep_in
from mtplxd.packs.resolver import scan_packs
from mtplxd.packs.tiers import judge

from mtplx_client.doctor.situation import Situation
from mtplx_client.doctor.verdicts import Check


def check_packs(situation: Situation) -> Iterator[Check]:
    """Every pack's tier; one that is not whole is wrong, one that is not verified is not."""
    if situation.home.root.is_dir():
        keep_in(situation.home.root)  # so that weights are not hashed again at every look
    packs, damaged = scan_packs(situation.home)
    yield judge_packs(
        {pack.name: judge(pack)[0] for pack in packs}, {name: str(error) for name, error in damaged.items()}
    )


def judge_packs(tiers: dict[str, str], damaged: dict[str, str]) -> Check:
    """By name, the tier of whole packs and what is wrong with the others."""
    if damaged:
        detail = "; ".join(f"{name}: {reason}" for name, reason in damaged.items())
        return Check("packs", False, detail, f"`mtplx pull` again, or `mtplx rm {next(iter(damaged))}`")
    if not tiers:
        return Check("packs", True, "none yet: `mtplx pull smollm2-135m`")
    return Check("packs", True, ", ".join(f"{name} {tier}" for name, tier in sorted(tiers.items())))


def check_sessions(situation: Situation) -> Iterator[Check]:
    """The sessions' file as SQLite sees it."""
    path = situation.home.sessions_file
    if not path.is_file():
        yield Check("sessions", True, "none yet")
        return
    fix = "restart the daemon, which sets it aside; restore it from a backup"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            [verdict] = file.execute("PRAGMA quick_check(1)").fetchone()
            [count] = file.execute("SELECT count(*) FROM sessions").fetchone()
    except sqlite3.Error as error:
        yield Check("sessions", False, f"{path}: {error}", fix)
        return
    yield Check(
        "sessions", verdict == "ok", f"{count} in {path}" if verdict == "ok" else f"{path}: {verdict}", fix
    )
