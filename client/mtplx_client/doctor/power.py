"""Whether the machine holds back: a power mode that halves decoding is the first thing to know about slow answers."""

from __future__ import annotations

from collections.abc import Iterator

from mtplx_client.doctor.situation import Situation
from mtplx_client.doctor.verdicts import Check

_FIX = "turn Low Power Mode off (System Settings, Battery), or measure knowing that it is on"


def check_power(situation: Situation) -> Iterator[Check]:
    """The power mode as the machine's probe found it."""
    yield judge_power(str(situation.machine.found.get("power", "unknown")))


def judge_power(mode: str) -> Check:
    """Low is wrong; unknown is not, most machines do not tell."""
    words = {"low": "Low Power Mode: decoding is about half as fast", "unknown": "this system does not tell"}
    return Check("power", mode != "low", words.get(mode, mode), _FIX)
