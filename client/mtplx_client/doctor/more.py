"""Groups of checks beyond what the daemon needs to start, a file each; a further group is one more name in GROUPS."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mtplx_client.doctor import access, helper, hub, power, service, stock, versions
from mtplx_client.doctor.situation import Situation
from mtplx_client.doctor.verdicts import Check

Group = Callable[[Situation], Iterator[Check]]

GROUPS: list[Group] = [
    versions.check_versions,
    access.check_permissions,
    power.check_power,
    service.check_service,
    service.check_starts,
    helper.check_fan_helper,
    stock.check_packs,
    stock.check_sessions,
    hub.check_hub,
]


def run_groups(situation: Situation) -> Iterator[Check]:
    """All of them; one that fails itself is a check that failed."""
    for group in GROUPS:
        try:
            yield from group(situation)
        except Exception as error:  # the doctor has to get to the end
            name = group.__name__.removeprefix("check_")
            yield Check(
                name, False, f"cannot be checked, {type(error).__name__}: {error}", "please report this"
            )
