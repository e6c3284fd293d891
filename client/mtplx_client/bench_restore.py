"""Times a prompt that is read anew against the same one brought back from memory and from disk, over the socket.

Owns who asks what and when, and the clock's readings. That a prompt comes from disk is made sure by taking the model
out of memory and back in: what was kept of it there goes, what is on disk stays.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from mtplx_client.client import Client
from mtplx_client.errors import FailedPrecondition, Internal
from mtplx_client.events import Final, Progress, Text
from mtplx_client.replies import Resident
from mtplx_client.store import StoreStats

IDS = range(100, 400)
"""Token ids that prompts are drawn from: ordinary ones in every vocabulary."""
ANSWER = 16
LOAD_S, ANSWER_S = 300.0, 3600.0
"""How long is waited for a model, and for an answer: a long prompt on a slow machine takes its time."""
SETTLED_S, SETTLE_LIMIT_S = 4.0, 120.0
"""How long the disk must have been quiet until all is there, and how long that is waited for."""


@dataclass(frozen=True)
class RestorePlan:
    """What to measure: prompts of so many tokens, each brought back so often."""

    model: str
    tokens: int = 4096
    prompts: int = 1
    repeats: int = 3
    depth: int | str | None = None


@dataclass(frozen=True)
class Restored:
    """Medians over all prompts: `ttft_s` until the first token came, `restore_s` of that until what was kept was in
    place, in seconds. `mb_s` are millions of bytes of tensors a second, from the file to the row that goes on from
    them."""

    model: str
    prompt_tokens: int
    cold_ttft_s: float
    ram_ttft_s: float
    ssd_ttft_s: float
    ram_restore_s: float
    ssd_restore_s: float
    bytes_raw: int
    bytes_stored: int
    cached_tokens: int
    same_text: bool
    acceptance: dict[str, float] = field(default_factory=dict)

    @property
    def ratio_ram(self) -> float:
        """How many times faster than cold memory is."""
        return self.cold_ttft_s / self.ram_ttft_s

    @property
    def ratio_ssd(self) -> float:
        """How many times faster than cold the disk is."""
        return self.cold_ttft_s / self.ssd_ttft_s

    @property
    def mb_s(self) -> float:
        """Bytes brought back a second."""
        return self.bytes_raw / 1e6 / self.ssd_restore_s if self.ssd_restore_s else 0.0


@dataclass
class _Answers:
    """What was seen of one kind."""

    ttft_s: list[float] = field(default_factory=list)
    restore_s: list[float] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    texts: list[tuple[int, ...]] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0

    @property
    def acceptance(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0


def measure_restore(
    client: Client,
    plan: RestorePlan,
    on_progress: Callable[[Progress], None],
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
    seed: int | None = None,
) -> Restored:
    """Read each prompt cold, then from memory, then from disk. Raises FailedPrecondition where there is no store."""
    if client.cache_stats().state not in ("on", "opening"):
        raise FailedPrecondition(
            "the store is not on", client.cache_stats().state, "start the daemon with --store on"
        )
    draw = random.Random(seed)
    resident = _warm(client, plan, draw)
    kinds = {"cold": _Answers(), "ram": _Answers(), "ssd": _Answers()}
    raw: list[int] = []
    stored: list[int] = []
    steps, done = plan.prompts * (1 + 2 * plan.repeats), 0

    def ask(kind: str, prompt: list[int]) -> None:
        nonlocal done
        on_progress(Progress("measure", done, steps, "runs"))
        _ask(client, plan, resident.name, prompt, kinds[kind], clock)
        done += 1

    for _ in range(plan.prompts):
        prompt = [draw.choice(IDS) for _ in range(plan.tokens)]
        before = _settle(client, clock, sleep)
        ask("cold", prompt)
        for _ in range(plan.repeats):
            ask("ram", prompt)
        after = _settle(client, clock, sleep)
        raw.append(after.raw_bytes - before.raw_bytes)
        stored.append(after.bytes - before.bytes)
        for _ in range(plan.repeats):
            _reload(client, resident, plan)
            ask("ssd", prompt)
    on_progress(Progress("measure", steps, steps, "runs"))
    first = kinds["cold"].texts
    return Restored(
        resident.name,
        plan.tokens,
        cold_ttft_s=median(kinds["cold"].ttft_s),
        ram_ttft_s=median(kinds["ram"].ttft_s),
        ssd_ttft_s=median(kinds["ssd"].ttft_s),
        ram_restore_s=median(kinds["ram"].restore_s),
        ssd_restore_s=median(kinds["ssd"].restore_s),
        bytes_raw=int(median(raw)),
        bytes_stored=int(median(stored)),
        cached_tokens=min(kinds["ssd"].cached),
        same_text=all(
            text == first[place // plan.repeats]
            for kind in ("ram", "ssd")
            for place, text in enumerate(kinds[kind].texts)
        ),
        acceptance={kind: answers.acceptance for kind, answers in kinds.items()},
    )


def _warm(client: Client, plan: RestorePlan, draw: random.Random) -> Resident:
    """Brings the model into memory, and lets each shape be met once."""
    resident = client.load(plan.model, force=True, depth=plan.depth, timeout=LOAD_S)
    _ask(client, plan, resident.name, [draw.choice(IDS) for _ in range(64)], _Answers(), time.perf_counter)
    return resident


def _reload(client: Client, resident: Resident, plan: RestorePlan) -> None:
    client.unload(resident.name, timeout=LOAD_S)
    client.load(resident.name, force=True, depth=plan.depth, timeout=LOAD_S)
    _ask(client, plan, resident.name, [7 + IDS[0]] * 8, _Answers(), time.perf_counter)


def _ask(
    client: Client,
    plan: RestorePlan,
    model: str,
    prompt: list[int],
    into: _Answers,
    clock: Callable[[], float],
) -> None:
    tokens: list[int] = []
    begin, first = clock(), 0.0
    for event in client.generate(
        tokens=prompt,
        model=model,
        max_tokens=ANSWER,
        ignore_eos=True,
        temperature=0.0,
        force=True,
        depth=plan.depth,
        store="on",
        timeout=ANSWER_S,
    ):
        if isinstance(event, Text) and event.tokens:
            first = first or clock() - begin
            tokens += event.tokens
        elif isinstance(event, Final):
            if event.finish_reason != "length":
                raise Internal("a run ended early", event.stop_origin, event.message or "measure again")
            into.ttft_s.append(first)
            into.restore_s.append(event.stats.restore_s)
            into.cached.append(event.usage.cached_tokens)
            into.texts.append(tuple(tokens))
            into.drafted += event.stats.drafted
            into.accepted += event.stats.accepted
            return
    raise Internal("a run had no end", None, "see `mtplx logs`")


def _settle(client: Client, clock: Callable[[], float], sleep: Callable[[float], None]) -> StoreStats:
    """Waits until all that was computed is on disk."""
    begin = quiet = clock()
    last = client.cache_stats()
    while clock() - quiet < SETTLED_S and clock() - begin < SETTLE_LIMIT_S:
        sleep(0.2)
        now = client.cache_stats()
        if now.waiting or now.bytes != last.bytes:
            quiet = clock()
        last = now
    return last
