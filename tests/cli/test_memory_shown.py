"""What status says of memory and of sleep: only what somebody can use, and every refusal in words."""

from __future__ import annotations

from typing import Any

import pytest
from mtplx_client.cli.render import documents, views
from mtplx_client.replies import DeviceMemory, Memory, Power, Resident, Status

GIB = 1 << 30


def shown(memory: Memory | None = None, power: Power | None = None) -> str:
    return views.status(Status(memory=memory or Memory(), power=power or Power()), False)


def test_with_memory_enough_nothing_is_said_of_pressure() -> None:
    assert "pressure" not in shown(Memory(level="normal", reading="0.0 % of the time"))


def test_a_machine_short_of_memory_says_by_what_and_what_went() -> None:
    text = shown(Memory(level="warn", reading="kernel level 2", given_back="model a"))
    assert "pressure  warn, kernel level 2, gave back model a" in text
    assert "no new requests until it is less" in shown(Memory(level="critical"))


def test_what_went_is_still_told_when_all_is_well_again() -> None:
    text = shown(Memory(level="normal", reading="kernel level 1", given_back="the allocator's cache"))
    assert "pressure  normal, gave back the allocator's cache" in text


def test_what_mlx_keeps_and_wires_is_told_and_a_refusal_with_it() -> None:
    device = DeviceMemory(cache=GIB // 2, cache_limit=GIB, wired_limit=8 * GIB, wired="in force")
    assert "MLX keeps 512 MiB of 1.0 GiB, wires up to 8.0 GiB" in shown(Memory(device=device))
    refused = DeviceMemory(cache_limit=GIB, wired="refused: not allowed")
    assert "wired limit refused: not allowed" in shown(Memory(device=refused))


@pytest.mark.parametrize(
    ("power", "words"),
    [
        (Power(held=True, by="power assertion"), "power     kept awake by power assertion"),
        (Power(trouble="no systemd runs here"), "power     no systemd runs here"),
    ],
)
def test_who_keeps_the_machine_awake_is_told_or_why_nobody_does(power: Power, words: str) -> None:
    assert words in shown(power=power)


def test_an_idle_machine_that_could_be_kept_awake_says_nothing() -> None:
    assert "power" not in shown(power=Power(by="power assertion", times=3))


def test_a_pinned_model_stays_pinned_in_the_table_and_in_json() -> None:
    model = Resident(name="a", state="ready", keep_alive_s=60.0, keep_alive_from="config", pinned=True)
    assert "pinned" in views.residents([model], False)
    document: dict[str, Any] = documents.resident(model)
    assert (document["pinned"], document["keep_alive_s"], document["keep_alive_from"]) == (
        True,
        60.0,
        "config",
    )
