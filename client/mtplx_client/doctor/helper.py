"""The doctor's look at the fan helper: whether what root runs is still root's alone. Not installed is nothing wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mtplx_launchd.helper.install import check_installed
from mtplx_launchd.helper.plan import Places, places_here
from mtplx_launchd.helper.trust import Trust
from mtplxd.errors import MtplxError

from mtplx_client.doctor.situation import Situation
from mtplx_client.doctor.verdicts import Check


def check_fan_helper(_: Situation) -> Iterator[Check]:
    """As a group of the doctor's."""
    yield check_helper()


def check_helper(look: Callable[[Places, Trust], str] = check_installed) -> Check:
    """The check that installing made, once more. Nothing is raised."""
    fix = "`mtplx thermal install-helper` again, or `mtplx thermal uninstall-helper`"
    try:
        found = look(places_here(), Trust())
    except MtplxError as error:
        return Check("fan helper", False, f"{error.what} ({error.value})", error.fix or fix)
    except OSError as error:
        return Check("fan helper", False, f"cannot be looked at ({error})", fix)
    stale = "another version" in found
    return Check(
        "fan helper", not stale, found or "not installed: fans are the system's", fix if stale else ""
    )
