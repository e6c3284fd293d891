from mtplx_proto.v1 import models_pb2 as _models_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HelloRequest(_message.Message):
    __slots__ = ("version", "protocol")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    version: str
    protocol: int
    def __init__(self, version: _Optional[str] = ..., protocol: _Optional[int] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("version", "protocol", "pid")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    version: str
    protocol: int
    pid: int
    def __init__(self, version: _Optional[str] = ..., protocol: _Optional[int] = ..., pid: _Optional[int] = ...) -> None: ...

class Fan(_message.Message):
    __slots__ = ("rpm", "target", "min", "max", "automatic")
    RPM_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    AUTOMATIC_FIELD_NUMBER: _ClassVar[int]
    rpm: float
    target: float
    min: float
    max: float
    automatic: bool
    def __init__(self, rpm: _Optional[float] = ..., target: _Optional[float] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., automatic: _Optional[bool] = ...) -> None: ...

class FanLease(_message.Message):
    __slots__ = ("left_s", "reason")
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    left_s: float
    reason: str
    def __init__(self, left_s: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class Thermal(_message.Message):
    __slots__ = ("mode", "state", "helper", "fault", "fan_state", "lease", "fans", "power", "fan_mode")
    MODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HELPER_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    FAN_STATE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    FANS_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    FAN_MODE_FIELD_NUMBER: _ClassVar[int]
    mode: str
    state: str
    helper: str
    fault: str
    fan_state: str
    lease: FanLease
    fans: _containers.RepeatedCompositeFieldContainer[Fan]
    power: str
    fan_mode: str
    def __init__(self, mode: _Optional[str] = ..., state: _Optional[str] = ..., helper: _Optional[str] = ..., fault: _Optional[str] = ..., fan_state: _Optional[str] = ..., lease: _Optional[_Union[FanLease, _Mapping]] = ..., fans: _Optional[_Iterable[_Union[Fan, _Mapping]]] = ..., power: _Optional[str] = ..., fan_mode: _Optional[str] = ...) -> None: ...

class FansRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetFansRequest(_message.Message):
    __slots__ = ("mode",)
    MODE_FIELD_NUMBER: _ClassVar[int]
    mode: str
    def __init__(self, mode: _Optional[str] = ...) -> None: ...

class HoldFansRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("interval_s",)
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    interval_s: float
    def __init__(self, interval_s: _Optional[float] = ...) -> None: ...

class Blas(_message.Message):
    __slots__ = ("name", "threads", "gflops", "path")
    NAME_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    GFLOPS_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    name: str
    threads: int
    gflops: float
    path: str
    def __init__(self, name: _Optional[str] = ..., threads: _Optional[int] = ..., gflops: _Optional[float] = ..., path: _Optional[str] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("running", "waiting")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    running: int
    waiting: int
    def __init__(self, running: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class Memory(_message.Message):
    __slots__ = ("total", "plan", "used", "pressure", "free", "level", "reading", "given_back", "relieved", "device")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    PRESSURE_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    READING_FIELD_NUMBER: _ClassVar[int]
    GIVEN_BACK_FIELD_NUMBER: _ClassVar[int]
    RELIEVED_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    total: int
    plan: int
    used: int
    pressure: float
    free: int
    level: str
    reading: str
    given_back: str
    relieved: int
    device: DeviceMemory
    def __init__(self, total: _Optional[int] = ..., plan: _Optional[int] = ..., used: _Optional[int] = ..., pressure: _Optional[float] = ..., free: _Optional[int] = ..., level: _Optional[str] = ..., reading: _Optional[str] = ..., given_back: _Optional[str] = ..., relieved: _Optional[int] = ..., device: _Optional[_Union[DeviceMemory, _Mapping]] = ...) -> None: ...

class DeviceMemory(_message.Message):
    __slots__ = ("active", "cache", "cache_limit", "wired_limit", "wired")
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CACHE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    WIRED_LIMIT_FIELD_NUMBER: _ClassVar[int]
    WIRED_FIELD_NUMBER: _ClassVar[int]
    active: int
    cache: int
    cache_limit: int
    wired_limit: int
    wired: str
    def __init__(self, active: _Optional[int] = ..., cache: _Optional[int] = ..., cache_limit: _Optional[int] = ..., wired_limit: _Optional[int] = ..., wired: _Optional[str] = ...) -> None: ...

class Power(_message.Message):
    __slots__ = ("held", "by", "trouble", "times")
    HELD_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    held: bool
    by: str
    trouble: str
    times: int
    def __init__(self, held: _Optional[bool] = ..., by: _Optional[str] = ..., trouble: _Optional[str] = ..., times: _Optional[int] = ...) -> None: ...

class InFlight(_message.Message):
    __slots__ = ("id", "client", "model", "state", "waits_for", "prompt_tokens", "completion_tokens", "age_s", "prefilled", "cached_tokens", "rounds", "depth", "tok_s", "priority")
    ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    PREFILLED_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    TOK_S_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    id: str
    client: str
    model: str
    state: str
    waits_for: str
    prompt_tokens: int
    completion_tokens: int
    age_s: float
    prefilled: int
    cached_tokens: int
    rounds: int
    depth: int
    tok_s: float
    priority: str
    def __init__(self, id: _Optional[str] = ..., client: _Optional[str] = ..., model: _Optional[str] = ..., state: _Optional[str] = ..., waits_for: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., age_s: _Optional[float] = ..., prefilled: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., rounds: _Optional[int] = ..., depth: _Optional[int] = ..., tok_s: _Optional[float] = ..., priority: _Optional[str] = ...) -> None: ...

class EngineState(_message.Message):
    __slots__ = ("rows", "prefilling", "set_aside", "heartbeat_age_s", "stalled", "alive", "busy_with", "prefixes", "contexts")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PREFILLING_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    BUSY_WITH_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    prefilling: int
    set_aside: int
    heartbeat_age_s: float
    stalled: bool
    alive: bool
    busy_with: str
    prefixes: PrefixCache
    contexts: int
    def __init__(self, rows: _Optional[int] = ..., prefilling: _Optional[int] = ..., set_aside: _Optional[int] = ..., heartbeat_age_s: _Optional[float] = ..., stalled: _Optional[bool] = ..., alive: _Optional[bool] = ..., busy_with: _Optional[str] = ..., prefixes: _Optional[_Union[PrefixCache, _Mapping]] = ..., contexts: _Optional[int] = ...) -> None: ...

class PrefixCache(_message.Message):
    __slots__ = ("bytes", "limit", "entries", "hits", "misses")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    MISSES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    limit: int
    entries: int
    hits: int
    misses: int
    def __init__(self, bytes: _Optional[int] = ..., limit: _Optional[int] = ..., entries: _Optional[int] = ..., hits: _Optional[int] = ..., misses: _Optional[int] = ...) -> None: ...

class StoreState(_message.Message):
    __slots__ = ("bytes", "blocks", "sessions", "state", "reason")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    blocks: int
    sessions: int
    state: str
    reason: str
    def __init__(self, bytes: _Optional[int] = ..., blocks: _Optional[int] = ..., sessions: _Optional[int] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Counters(_message.Message):
    __slots__ = ("requests", "prompt_tokens", "completion_tokens", "rounds", "drafted", "accepted", "since_unix_s")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    requests: int
    prompt_tokens: int
    completion_tokens: int
    rounds: int
    drafted: int
    accepted: int
    since_unix_s: float
    def __init__(self, requests: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., rounds: _Optional[int] = ..., drafted: _Optional[int] = ..., accepted: _Optional[int] = ..., since_unix_s: _Optional[float] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("version", "pid", "uptime_s", "socket", "home", "state", "blas", "models", "queue", "memory", "in_flight", "counters", "degraded", "settings", "python", "engine", "store", "power", "thermal")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    SOCKET_FIELD_NUMBER: _ClassVar[int]
    HOME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BLAS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    THERMAL_FIELD_NUMBER: _ClassVar[int]
    version: str
    pid: int
    uptime_s: float
    socket: str
    home: str
    state: str
    blas: Blas
    models: _containers.RepeatedCompositeFieldContainer[_models_pb2.Resident]
    queue: Queue
    memory: Memory
    in_flight: _containers.RepeatedCompositeFieldContainer[InFlight]
    counters: Counters
    degraded: _containers.RepeatedScalarFieldContainer[str]
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    python: str
    engine: EngineState
    store: StoreState
    power: Power
    thermal: Thermal
    def __init__(self, version: _Optional[str] = ..., pid: _Optional[int] = ..., uptime_s: _Optional[float] = ..., socket: _Optional[str] = ..., home: _Optional[str] = ..., state: _Optional[str] = ..., blas: _Optional[_Union[Blas, _Mapping]] = ..., models: _Optional[_Iterable[_Union[_models_pb2.Resident, _Mapping]]] = ..., queue: _Optional[_Union[Queue, _Mapping]] = ..., memory: _Optional[_Union[Memory, _Mapping]] = ..., in_flight: _Optional[_Iterable[_Union[InFlight, _Mapping]]] = ..., counters: _Optional[_Union[Counters, _Mapping]] = ..., degraded: _Optional[_Iterable[str]] = ..., settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ..., python: _Optional[str] = ..., engine: _Optional[_Union[EngineState, _Mapping]] = ..., store: _Optional[_Union[StoreState, _Mapping]] = ..., power: _Optional[_Union[Power, _Mapping]] = ..., thermal: _Optional[_Union[Thermal, _Mapping]] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("key", "value", "source")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    source: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class ShutdownRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShutdownReply(_message.Message):
    __slots__ = ("pid",)
    PID_FIELD_NUMBER: _ClassVar[int]
    pid: int
    def __init__(self, pid: _Optional[int] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class CancelReply(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: bool
    def __init__(self, found: _Optional[bool] = ...) -> None: ...
