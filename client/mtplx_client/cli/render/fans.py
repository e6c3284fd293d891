"""Heat and fans for programs and for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mtplx_client.cli.render.table import Column, table
from mtplx_client.fans import Fan, Thermal

_ROWS = (Column("fan", True), Column("rpm", True), Column("target", True), Column("range"), Column("control"))


def state(found: Thermal) -> dict[str, Any]:
    """What status says of them."""
    lease = found.lease
    return {
        "mode": found.mode or None,
        "state": found.state or None,
        "helper": found.helper or None,
        "fans": [asdict(fan) for fan in found.fans],
        "fan_state": found.fan_state or None,
        "lease": None if lease is None else {"left_s": round(lease.left_s, 1), "reason": lease.reason},
        "fault": found.fault or None,
    }


def document(found: Thermal) -> dict[str, Any]:
    """The JSON document of `thermal status`."""
    return {**state(found), "power": found.power or None}


def words(found: Thermal) -> str:
    """One line for status; empty from a daemon that tells nothing."""
    if not found.mode:
        return ""
    parts = [
        found.state,
        f"fans {found.fan_state or 'automatic'}",
        f"mode {found.mode}",
        f"helper {found.helper}",
    ]
    if found.lease is not None:
        parts.append(f"held for: {found.lease.reason}")
    return ", ".join(parts)


def label(found: Thermal) -> str:
    """What a measurement is labelled with."""
    return f"power {found.power or '–'}, thermal {found.state or '–'}, fans {found.fan_mode or '–'}"


def view(found: Thermal, color: bool) -> str:
    """What `thermal status` shows."""
    lease = found.lease
    facts = [
        ("mode", _MODES.get(found.mode, found.mode)),
        ("heat", found.state),
        ("power", found.power),
        ("helper", _HELPERS.get(found.helper, found.helper)),
        ("lease", f"{lease.left_s:.0f} s left: {lease.reason}" if lease else "none"),
        ("fans", found.fan_state),
        ("fault", found.fault if found.helper != "not-installed" else ""),
    ]
    lines = [f"{name:<10}{value}" for name, value in facts if value]
    if found.fans:
        rows = [_row(number, fan) for number, fan in enumerate(found.fans)]
        lines += ["", table(_ROWS, rows, color)]
    return "\n".join(lines)


_MODES = {
    "auto": "auto: fans are the system's, but for measurements",
    "smart": "smart: held while text is made, until the machine is cool",
    "max": "max: held while the daemon lives",
}
_HELPERS = {
    "not-installed": "not installed: `mtplx thermal install-helper`",
    "unreachable": "installed, and does not answer",
    "refused": "installed, and refuses",
    "yielded": "another tool has the fans",
}


def _row(number: int, fan: Fan) -> tuple[str, ...]:
    control = "automatic" if fan.automatic else "held"
    return (str(number), f"{fan.rpm:.0f}", f"{fan.target:.0f}", f"{fan.min:.0f} to {fan.max:.0f}", control)
