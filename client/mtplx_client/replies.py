"""What calls about packs, models and the daemon answer: frozen dataclasses, their fields named as on the wire.

Owns no wire format and no display. Sizes are bytes, times seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mtplx_client.events import Paying
from mtplx_client.fans import Thermal
from mtplx_client.requests import AUTO


@dataclass(frozen=True)
class Hello:
    """Who answers."""

    version: str = ""
    protocol: int = 0
    pid: int = 0


@dataclass(frozen=True)
class Pack:
    """A pack on disk; `tier` is verified, unverified, incompatible or no-mtp-head."""

    name: str = ""
    path: str = ""
    bytes: int = 0
    family: str = ""
    tier: str = ""
    model_type: str = ""
    bytes_body: int = 0
    bytes_head: int = 0
    head_layout: str = ""
    depth_max: int = 0
    context: int = 0
    fingerprint_body: str = ""
    fingerprint_head: str = ""
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    head_trained: bool = False


@dataclass(frozen=True)
class Damaged:
    """A folder among the packs that is none, and why, in one line."""

    name: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Listing:
    """The packs on disk, and what else lies where packs belong."""

    packs: tuple[Pack, ...] = ()
    damaged: tuple[Damaged, ...] = ()


@dataclass(frozen=True)
class Shown:
    """A pack and its manifest, as the JSON text of `mtplx_runtime.json` (empty without one)."""

    pack: Pack = field(default_factory=Pack)
    manifest_json: str = ""


@dataclass(frozen=True)
class Tuned:
    """A depth that tuning chose here; `used` by requests that name none, unless the model was loaded with one.

    `stale` = measured under other versions of the system, MLX or mtplxd.
    """

    depth: int = 0
    auto: bool = False
    ratio: float = 0.0
    ci95: tuple[float, ...] = ()
    measured_at: str = ""
    stale: bool = False
    used: bool = False

    @property
    def chosen(self) -> int | str:
        """The depth, or `auto`."""
        return AUTO if self.auto else self.depth


@dataclass(frozen=True)
class Resident:
    """A model in memory or on its way there; `state` is loading, ready, unloading or failed.

    `apart` says why its requests are decoded in turn; it is empty where they are decoded together. `store` is what its
    requests do that do not say, empty where that is the daemon's setting. `paying` is None while too little is known.
    `keep_alive_from` tells who set the keep-alive; a `pinned` one stays whoever needs memory and however long it idles.
    """

    name: str = ""
    state: str = ""
    tier: str = ""
    bytes_body: int = 0
    bytes_head: int = 0
    depth: int = 0
    keep_alive_s: float = -1.0
    in_use: int = 0
    path: str = ""
    depth_max: int = 0
    idle_s: float = 0.0
    degraded: tuple[str, ...] = ()
    family: str = ""
    apart: str = ""
    store: str = ""
    tuned: Tuned | None = None
    paying: Paying | None = None
    keep_alive_from: str = ""
    pinned: bool = False


@dataclass(frozen=True)
class Removed:
    """A pack that is gone, as it was."""

    name: str = ""
    bytes_freed: int = 0
    pack: Pack = field(default_factory=Pack)


@dataclass(frozen=True)
class Unloaded:
    """A model that left memory, as it was."""

    name: str = ""
    bytes_freed: int = 0
    resident: Resident = field(default_factory=Resident)


@dataclass(frozen=True)
class Blas:
    """The CPU's matrix library and what a small product measured (0 = not measured yet)."""

    name: str = ""
    threads: int = 0
    gflops: float = 0.0
    path: str = ""


@dataclass(frozen=True)
class Queue:
    """Requests in work and waiting."""

    running: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class DeviceMemory:
    """What MLX counts of its own memory, and its bounds; `wired` says what came of asking for `wired_limit`."""

    active: int = 0
    cache: int = 0
    cache_limit: int = 0
    wired_limit: int = 0
    wired: str = ""


@dataclass(frozen=True)
class Memory:
    """Bytes of the machine, of the plan and in use by the system's count; `pressure` = used / plan.

    `level` is normal, warn or critical: how short of memory the machine is, by what `reading` says. `given_back` is
    what went last for it, `relieved` how often something did.
    """

    total: int = 0
    plan: int = 0
    used: int = 0
    pressure: float = 0.0
    free: int = 0
    level: str = ""
    reading: str = ""
    given_back: str = ""
    relieved: int = 0
    device: DeviceMemory = field(default_factory=DeviceMemory)


@dataclass(frozen=True)
class Power:
    """Whether the machine is kept from sleeping, `by` what, or why it cannot; how many times it was."""

    held: bool = False
    by: str = ""
    trouble: str = ""
    times: int = 0


@dataclass(frozen=True)
class InFlight:
    """A request in work; `state` is load, queue, prefill, decode or set_aside.

    `waits_for` says in words whom or what it waits for; `depth` is what its latest round drafted; `tok_s` is its rate
    so far.
    """

    id: str = ""
    client: str = ""
    model: str = ""
    state: str = ""
    waits_for: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    age_s: float = 0.0
    prefilled: int = 0
    cached_tokens: int = 0
    rounds: int = 0
    depth: int = 0
    tok_s: float = 0.0
    priority: str = ""


@dataclass(frozen=True)
class PrefixCache:
    """Prompts that were read and are kept in memory; `hits` and `misses` count prompts that looked for one."""

    bytes: int = 0
    limit: int = 0
    entries: int = 0
    hits: int = 0
    misses: int = 0


@dataclass(frozen=True)
class EngineState:
    """What the engine has in hand: rows that decode, prompts that are read, rows that were set aside.

    `stalled` = it has work and has not gone on for too long; `busy_with` names a call that holds it. `contexts` are the
    bytes that the contexts of all rows hold.
    """

    rows: int = 0
    prefilling: int = 0
    set_aside: int = 0
    heartbeat_age_s: float = 0.0
    stalled: bool = False
    alive: bool = False
    busy_with: str = ""
    prefixes: PrefixCache = field(default_factory=PrefixCache)
    contexts: int = 0


@dataclass(frozen=True)
class StoreState:
    """What is kept on disk: bytes of blocks and sessions. `state` is on, write-only, off, opening, paused or degraded,
    and `reason` says why."""

    bytes: int = 0
    blocks: int = 0
    sessions: int = 0
    state: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Counters:
    """Totals since `since_unix_s`."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    since_unix_s: float = 0.0


@dataclass(frozen=True)
class Setting:
    """An effective setting; `source` is flag, env, config or default."""

    key: str = ""
    value: str = ""
    source: str = ""


@dataclass(frozen=True)
class Status:
    """The daemon's state; `state` is starting, serving or draining."""

    version: str = ""
    pid: int = 0
    uptime_s: float = 0.0
    socket: str = ""
    home: str = ""
    state: str = ""
    blas: Blas = field(default_factory=Blas)
    models: tuple[Resident, ...] = ()
    queue: Queue = field(default_factory=Queue)
    memory: Memory = field(default_factory=Memory)
    in_flight: tuple[InFlight, ...] = ()
    counters: Counters = field(default_factory=Counters)
    degraded: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    python: str = ""
    engine: EngineState = field(default_factory=EngineState)
    store: StoreState = field(default_factory=StoreState)
    power: Power = field(default_factory=Power)
    thermal: Thermal = field(default_factory=Thermal)


@dataclass(frozen=True)
class Stopped:
    """The process that drains now."""

    pid: int = 0


@dataclass(frozen=True)
class CancelDone:
    """Whether there was such a request; one that has ended is unknown."""

    found: bool = False
