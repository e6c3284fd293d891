"""Fans and heat as clients ask for them: messages, the choice of a mode, and a lease as long as a stream.

When fans are held is `thermal`'s; what a setting is, `config`'s.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from contextlib import AbstractContextManager

from mtplx_proto.v1 import system_pb2

from mtplxd.config import set_value
from mtplxd.errors import InvalidArgument
from mtplxd.paths import Home
from mtplxd.platform.machine import Power, read_machine
from mtplxd.platform.thermal import Thermal, read_pressure, read_thermal
from mtplxd.thermal.policy import MODES, Mode
from mtplxd.thermal.warden import View, Warden

LONGEST_REASON = 80


class FanDesk:
    """`files` runs what reads files or waits for the helper, so that the loop never does."""

    def __init__(self, home: Home, warden: Warden, files: Executor) -> None:
        self._home, self._warden, self._files = home, warden, files

    def state(self) -> system_pb2.Thermal:
        """As it stood a moment ago; never waits."""
        return thermal_message(self._warden.view(), read_pressure())

    async def look(self) -> system_pb2.Thermal:
        """As it stands now."""
        return await asyncio.get_running_loop().run_in_executor(self._files, self._look)

    async def set_mode(self, asked: str) -> system_pb2.Thermal:
        """Applies a mode and keeps it in the settings. Raises InvalidArgument, FailedPrecondition."""
        mode = next((mode for mode in MODES if mode == asked), None)
        if mode is None:
            raise InvalidArgument("unknown fan mode", asked, f"give {', '.join(MODES)}", field="mode")
        return await asyncio.get_running_loop().run_in_executor(self._files, self._set, mode)

    def hold(self, reason: str) -> AbstractContextManager[None]:
        """A claim for a client, told to whoever looks."""
        return self._warden.hold(reason.strip()[:LONGEST_REASON] or "a client")

    def _set(self, mode: Mode) -> system_pb2.Thermal:
        set_value(self._home, "fans", mode)
        self._warden.set_mode(mode)
        return self._look()

    def _look(self) -> system_pb2.Thermal:
        return thermal_message(self._warden.look(), read_thermal(), read_machine().power)


def thermal_message(view: View, state: Thermal, power: Power | None = None) -> system_pb2.Thermal:
    held = view.held
    lease = (
        system_pb2.FanLease(left_s=held.lease_s or 0.0, reason=view.reason) if held and view.leased else None
    )
    return system_pb2.Thermal(
        mode=view.mode,
        state=state,
        helper=view.helper,
        fault=view.fault,
        fan_state=held.state if held else "",
        lease=lease,
        fans=[
            system_pb2.Fan(rpm=fan.rpm, target=fan.target, min=fan.min, max=fan.max, automatic=fan.automatic)
            for fan in (held.fans if held and held.fans else ())
        ],
        power=power or "",
        fan_mode=view.label,
    )
