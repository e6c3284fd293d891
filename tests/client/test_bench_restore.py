"""What `bench restore` asks for, in which order, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mtplx_client.bench_restore import ANSWER, IDS, SETTLED_S, RestorePlan, measure_restore
from mtplx_client.cli.render import restores
from mtplx_client.errors import FailedPrecondition, Internal
from mtplx_client.events import Final, Progress, Sampler, Stats, Text, Usage
from mtplx_client.fans import Thermal
from mtplx_client.replies import Resident
from mtplx_client.store import StoreStats

SECONDS = {"cold": 40.0, "ram": 0.5, "ssd": 1.0}

COOL = Thermal(fan_mode="held", state="nominal", power="normal")


class Daemon:
    """Answers as fast as where a prompt comes from says; a clock goes on as it does."""

    def __init__(self) -> None:
        self.now = 0.0
        self.memory: set[tuple[int, ...]] = set()
        self.disk: set[tuple[int, ...]] = set()
        self.calls: list[str] = []
        self.stats = StoreStats(state="on")
        self.other_text_from_disk = False
        self.reason = "length"

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def cache_stats(self) -> StoreStats:
        size = sum(map(len, self.disk))
        return StoreStats(state=self.stats.state, bytes=80 * size, raw_bytes=100 * size)

    def load(self, name: str, **_: Any) -> Resident:
        self.calls.append(f"load {name}")
        return Resident(name="pack", depth_max=3)

    def unload(self, name: str, **_: Any) -> None:
        self.calls.append(f"unload {name}")
        self.memory.clear()

    def generate(self, *, tokens: list[int], **options: Any) -> Iterator[Any]:
        assert (options["temperature"], options["store"], options["max_tokens"]) == (0.0, "on", ANSWER)
        prompt = tuple(tokens)
        kind = "ram" if prompt in self.memory else "ssd" if prompt in self.disk else "cold"
        self.calls.append(f"{kind} {len(prompt)}")
        yield Progress("prefill", 0, len(prompt), "tokens")
        self.now += SECONDS[kind]
        said = 9 if kind == "ssd" and self.other_text_from_disk else 8
        yield Text("x", (said,) * ANSWER)
        self.now += 3.0
        self.memory.add(prompt)
        self.disk.add(prompt)
        cached = 0 if kind == "cold" else len(prompt) - 1
        yield Final(
            finish_reason=self.reason,
            stop_origin="max_tokens",
            usage=Usage(len(prompt), cached, ANSWER),
            sampler=Sampler(),
            stats=Stats(drafted=10, accepted=7, restore_s=SECONDS[kind] / 2 if cached else 0.0),
        )


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


def measure(daemon: Daemon, **words: Any) -> Any:
    plan = RestorePlan("smollm2-135m", **words)
    client: Any = daemon
    return measure_restore(client, plan, lambda _: None, daemon.clock, daemon.sleep, seed=1)


def test_each_prompt_is_read_once_and_brought_back_from_both(daemon: Daemon) -> None:
    found = measure(daemon, tokens=500, prompts=2, repeats=2)
    kinds = [call for call in daemon.calls if call.endswith(" 500")]
    assert kinds == ["cold 500", "ram 500", "ram 500", "ssd 500", "ssd 500"] * 2
    assert (found.cold_ttft_s, found.ram_ttft_s, found.ssd_ttft_s) == (40.0, 0.5, 1.0)
    assert (found.ratio_ram, found.ratio_ssd) == (80.0, 40.0)
    assert (found.ram_restore_s, found.ssd_restore_s) == (0.25, 0.5)
    assert found.cached_tokens == 499
    assert found.same_text
    assert found.acceptance == dict.fromkeys(SECONDS, 0.7)


def test_before_the_disk_is_timed_the_model_has_left_memory_each_time(daemon: Daemon) -> None:
    measure(daemon, tokens=500, repeats=3)
    places = [place for place, call in enumerate(daemon.calls) if call == "ssd 500"]
    assert len(places) == 3
    for place in places:
        assert daemon.calls[place - 3 : place - 1] == ["unload pack", "load pack"]


def test_bytes_are_those_of_the_prompt_alone(daemon: Daemon) -> None:
    daemon.disk.add(tuple(range(1000)))
    found = measure(daemon, tokens=500)
    assert (found.bytes_raw, found.bytes_stored) == (50_000, 40_000)
    assert found.mb_s == pytest.approx(0.1)


def test_another_text_is_told(daemon: Daemon) -> None:
    daemon.other_text_from_disk = True
    assert not measure(daemon, tokens=500).same_text


def test_prompts_are_ordinary_ids_and_all_different(daemon: Daemon) -> None:
    measure(daemon, tokens=300, prompts=3, repeats=1)
    long = [prompt for prompt in daemon.disk if len(prompt) == 300]
    assert len(long) == 3
    assert all(token in IDS for prompt in long for token in prompt)


def test_it_waits_until_the_disk_is_quiet(daemon: Daemon) -> None:
    begin = daemon.now
    measure(daemon, tokens=300, repeats=1)
    assert daemon.now - begin > 2 * SETTLED_S


def test_without_a_store_there_is_nothing_to_measure(daemon: Daemon) -> None:
    daemon.stats = StoreStats(state="off")
    with pytest.raises(FailedPrecondition, match=r"store is not on \(off\)"):
        measure(daemon)


def test_an_answer_that_ends_early_is_no_measurement(daemon: Daemon) -> None:
    daemon.reason = "cancelled"
    with pytest.raises(Internal, match="ended early"):
        measure(daemon)


def test_the_document_has_the_fields_that_programs_rely_on(daemon: Daemon) -> None:
    found = measure(daemon, tokens=500)
    document = restores.document(found, COOL)
    assert {
        "cold_ttft_s", "ram_ttft_s", "ssd_ttft_s", "ratio_ssd", "ratio_ram", "bytes_raw", "bytes_stored",
        "cached_tokens", "same_text", "mb_s", "ram_restore_s", "ssd_restore_s", "fan_mode", "thermal", "power",
    } <= document.keys()  # fmt: skip
    assert "disk       1.00 s  40.00" in restores.view(found, COOL)
