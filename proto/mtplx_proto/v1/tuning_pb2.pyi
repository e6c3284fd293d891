from mtplx_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TuneRequest(_message.Message):
    __slots__ = ("model", "depths", "auto", "sampler", "suite", "prompts", "max_tokens", "context", "quick", "accept_throttled", "no_save", "retune", "no_fans")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DEPTHS_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    SUITE_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    QUICK_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_THROTTLED_FIELD_NUMBER: _ClassVar[int]
    NO_SAVE_FIELD_NUMBER: _ClassVar[int]
    RETUNE_FIELD_NUMBER: _ClassVar[int]
    NO_FANS_FIELD_NUMBER: _ClassVar[int]
    model: str
    depths: _containers.RepeatedScalarFieldContainer[int]
    auto: bool
    sampler: _common_pb2.SamplerRequest
    suite: str
    prompts: int
    max_tokens: int
    context: int
    quick: bool
    accept_throttled: bool
    no_save: bool
    retune: bool
    no_fans: bool
    def __init__(self, model: _Optional[str] = ..., depths: _Optional[_Iterable[int]] = ..., auto: _Optional[bool] = ..., sampler: _Optional[_Union[_common_pb2.SamplerRequest, _Mapping]] = ..., suite: _Optional[str] = ..., prompts: _Optional[int] = ..., max_tokens: _Optional[int] = ..., context: _Optional[int] = ..., quick: _Optional[bool] = ..., accept_throttled: _Optional[bool] = ..., no_save: _Optional[bool] = ..., retune: _Optional[bool] = ..., no_fans: _Optional[bool] = ...) -> None: ...

class TuneRow(_message.Message):
    __slots__ = ("depth", "auto", "tok_s", "ratio", "ci95", "tokens_per_round", "acceptance_by_position", "round_ms", "rounds", "prompts", "suite", "context", "fan_mode", "thermal", "power")
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    TOK_S_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    CI95_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_ROUND_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    ROUND_MS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    SUITE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FAN_MODE_FIELD_NUMBER: _ClassVar[int]
    THERMAL_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    depth: int
    auto: bool
    tok_s: float
    ratio: float
    ci95: _containers.RepeatedScalarFieldContainer[float]
    tokens_per_round: float
    acceptance_by_position: _containers.RepeatedScalarFieldContainer[float]
    round_ms: float
    rounds: int
    prompts: int
    suite: str
    context: int
    fan_mode: str
    thermal: str
    power: str
    def __init__(self, depth: _Optional[int] = ..., auto: _Optional[bool] = ..., tok_s: _Optional[float] = ..., ratio: _Optional[float] = ..., ci95: _Optional[_Iterable[float]] = ..., tokens_per_round: _Optional[float] = ..., acceptance_by_position: _Optional[_Iterable[float]] = ..., round_ms: _Optional[float] = ..., rounds: _Optional[int] = ..., prompts: _Optional[int] = ..., suite: _Optional[str] = ..., context: _Optional[int] = ..., fan_mode: _Optional[str] = ..., thermal: _Optional[str] = ..., power: _Optional[str] = ...) -> None: ...

class Drift(_message.Message):
    __slots__ = ("start", "middle", "end", "change", "held_s", "took_s", "throttled")
    START_FIELD_NUMBER: _ClassVar[int]
    MIDDLE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    HELD_S_FIELD_NUMBER: _ClassVar[int]
    TOOK_S_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    start: float
    middle: float
    end: float
    change: float
    held_s: float
    took_s: float
    throttled: bool
    def __init__(self, start: _Optional[float] = ..., middle: _Optional[float] = ..., end: _Optional[float] = ..., change: _Optional[float] = ..., held_s: _Optional[float] = ..., took_s: _Optional[float] = ..., throttled: _Optional[bool] = ...) -> None: ...

class TuneDecision(_message.Message):
    __slots__ = ("depth", "auto", "saved", "cleared", "verdict", "message")
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    depth: int
    auto: bool
    saved: bool
    cleared: bool
    verdict: str
    message: str
    def __init__(self, depth: _Optional[int] = ..., auto: _Optional[bool] = ..., saved: _Optional[bool] = ..., cleared: _Optional[bool] = ..., verdict: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class TuneReply(_message.Message):
    __slots__ = ("model", "machine", "key", "rows", "drift", "decision", "sampler", "suite", "max_tokens", "order", "notes", "measured_at", "cached", "fingerprint_body", "fingerprint_head")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    SUITE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    MEASURED_AT_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_BODY_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_HEAD_FIELD_NUMBER: _ClassVar[int]
    model: str
    machine: Machine
    key: str
    rows: _containers.RepeatedCompositeFieldContainer[TuneRow]
    drift: Drift
    decision: TuneDecision
    sampler: _common_pb2.Sampler
    suite: str
    max_tokens: int
    order: _containers.RepeatedScalarFieldContainer[str]
    notes: _containers.RepeatedScalarFieldContainer[str]
    measured_at: str
    cached: bool
    fingerprint_body: str
    fingerprint_head: str
    def __init__(self, model: _Optional[str] = ..., machine: _Optional[_Union[Machine, _Mapping]] = ..., key: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[TuneRow, _Mapping]]] = ..., drift: _Optional[_Union[Drift, _Mapping]] = ..., decision: _Optional[_Union[TuneDecision, _Mapping]] = ..., sampler: _Optional[_Union[_common_pb2.Sampler, _Mapping]] = ..., suite: _Optional[str] = ..., max_tokens: _Optional[int] = ..., order: _Optional[_Iterable[str]] = ..., notes: _Optional[_Iterable[str]] = ..., measured_at: _Optional[str] = ..., cached: _Optional[bool] = ..., fingerprint_body: _Optional[str] = ..., fingerprint_head: _Optional[str] = ...) -> None: ...

class TuneEvent(_message.Message):
    __slots__ = ("progress", "reply")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    progress: _common_pb2.Progress
    reply: TuneReply
    def __init__(self, progress: _Optional[_Union[_common_pb2.Progress, _Mapping]] = ..., reply: _Optional[_Union[TuneReply, _Mapping]] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("model", "samples", "prompts", "max_tokens", "depths", "dry_run")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEPTHS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    model: str
    samples: int
    prompts: int
    max_tokens: int
    depths: _containers.RepeatedScalarFieldContainer[int]
    dry_run: bool
    def __init__(self, model: _Optional[str] = ..., samples: _Optional[int] = ..., prompts: _Optional[int] = ..., max_tokens: _Optional[int] = ..., depths: _Optional[_Iterable[int]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class Identity(_message.Message):
    __slots__ = ("tokens", "divergences", "near_ties", "found")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    DIVERGENCES_FIELD_NUMBER: _ClassVar[int]
    NEAR_TIES_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    divergences: int
    near_ties: int
    found: _containers.RepeatedCompositeFieldContainer[Divergence]
    def __init__(self, tokens: _Optional[int] = ..., divergences: _Optional[int] = ..., near_ties: _Optional[int] = ..., found: _Optional[_Iterable[_Union[Divergence, _Mapping]]] = ...) -> None: ...

class Divergence(_message.Message):
    __slots__ = ("prompt", "depth", "position", "margin", "near_tie")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MARGIN_FIELD_NUMBER: _ClassVar[int]
    NEAR_TIE_FIELD_NUMBER: _ClassVar[int]
    prompt: int
    depth: int
    position: int
    margin: float
    near_tie: bool
    def __init__(self, prompt: _Optional[int] = ..., depth: _Optional[int] = ..., position: _Optional[int] = ..., margin: _Optional[float] = ..., near_tie: _Optional[bool] = ...) -> None: ...

class LawTest(_message.Message):
    __slots__ = ("test", "tokens", "statistic", "p_value", "power", "alternative")
    TEST_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    STATISTIC_FIELD_NUMBER: _ClassVar[int]
    P_VALUE_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVE_FIELD_NUMBER: _ClassVar[int]
    test: str
    tokens: int
    statistic: float
    p_value: float
    power: float
    alternative: str
    def __init__(self, test: _Optional[str] = ..., tokens: _Optional[int] = ..., statistic: _Optional[float] = ..., p_value: _Optional[float] = ..., power: _Optional[float] = ..., alternative: _Optional[str] = ...) -> None: ...

class Verification(_message.Message):
    __slots__ = ("model", "shape_noise", "greedy", "coupled", "law", "passed", "failures", "recorded", "depths", "fingerprint_body", "fingerprint_head", "machine", "unrecorded", "incomplete")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SHAPE_NOISE_FIELD_NUMBER: _ClassVar[int]
    GREEDY_FIELD_NUMBER: _ClassVar[int]
    COUPLED_FIELD_NUMBER: _ClassVar[int]
    LAW_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    DEPTHS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_BODY_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_HEAD_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    UNRECORDED_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    model: str
    shape_noise: float
    greedy: Identity
    coupled: Identity
    law: LawTest
    passed: bool
    failures: _containers.RepeatedScalarFieldContainer[str]
    recorded: bool
    depths: _containers.RepeatedScalarFieldContainer[int]
    fingerprint_body: str
    fingerprint_head: str
    machine: Machine
    unrecorded: str
    incomplete: str
    def __init__(self, model: _Optional[str] = ..., shape_noise: _Optional[float] = ..., greedy: _Optional[_Union[Identity, _Mapping]] = ..., coupled: _Optional[_Union[Identity, _Mapping]] = ..., law: _Optional[_Union[LawTest, _Mapping]] = ..., passed: _Optional[bool] = ..., failures: _Optional[_Iterable[str]] = ..., recorded: _Optional[bool] = ..., depths: _Optional[_Iterable[int]] = ..., fingerprint_body: _Optional[str] = ..., fingerprint_head: _Optional[str] = ..., machine: _Optional[_Union[Machine, _Mapping]] = ..., unrecorded: _Optional[str] = ..., incomplete: _Optional[str] = ...) -> None: ...

class VerifyEvent(_message.Message):
    __slots__ = ("progress", "verification")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    VERIFICATION_FIELD_NUMBER: _ClassVar[int]
    progress: _common_pb2.Progress
    verification: Verification
    def __init__(self, progress: _Optional[_Union[_common_pb2.Progress, _Mapping]] = ..., verification: _Optional[_Union[Verification, _Mapping]] = ...) -> None: ...

class SuiteRequest(_message.Message):
    __slots__ = ("suite", "prompts", "seed")
    SUITE_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    suite: str
    prompts: int
    seed: int
    def __init__(self, suite: _Optional[str] = ..., prompts: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...

class SuitePrompt(_message.Message):
    __slots__ = ("index", "text", "seed")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    index: int
    text: str
    seed: int
    def __init__(self, index: _Optional[int] = ..., text: _Optional[str] = ..., seed: _Optional[int] = ...) -> None: ...

class SuiteReply(_message.Message):
    __slots__ = ("suite", "prompts")
    SUITE_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    suite: str
    prompts: _containers.RepeatedCompositeFieldContainer[SuitePrompt]
    def __init__(self, suite: _Optional[str] = ..., prompts: _Optional[_Iterable[_Union[SuitePrompt, _Mapping]]] = ...) -> None: ...

class MeasureRequest(_message.Message):
    __slots__ = ("model", "depths", "sampler", "max_tokens", "prompts", "suite", "auto", "no_fans")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DEPTHS_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    SUITE_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    NO_FANS_FIELD_NUMBER: _ClassVar[int]
    model: str
    depths: _containers.RepeatedScalarFieldContainer[int]
    sampler: _common_pb2.SamplerRequest
    max_tokens: int
    prompts: int
    suite: str
    auto: bool
    no_fans: bool
    def __init__(self, model: _Optional[str] = ..., depths: _Optional[_Iterable[int]] = ..., sampler: _Optional[_Union[_common_pb2.SamplerRequest, _Mapping]] = ..., max_tokens: _Optional[int] = ..., prompts: _Optional[int] = ..., suite: _Optional[str] = ..., auto: _Optional[bool] = ..., no_fans: _Optional[bool] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("prompt", "depth", "tokens", "first_s", "last_s", "stats", "ideal_round_ms", "round_ms", "auto")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FIRST_S_FIELD_NUMBER: _ClassVar[int]
    LAST_S_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    IDEAL_ROUND_MS_FIELD_NUMBER: _ClassVar[int]
    ROUND_MS_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    prompt: int
    depth: int
    tokens: int
    first_s: float
    last_s: float
    stats: _common_pb2.Stats
    ideal_round_ms: float
    round_ms: float
    auto: bool
    def __init__(self, prompt: _Optional[int] = ..., depth: _Optional[int] = ..., tokens: _Optional[int] = ..., first_s: _Optional[float] = ..., last_s: _Optional[float] = ..., stats: _Optional[_Union[_common_pb2.Stats, _Mapping]] = ..., ideal_round_ms: _Optional[float] = ..., round_ms: _Optional[float] = ..., auto: _Optional[bool] = ...) -> None: ...

class SummariseRequest(_message.Message):
    __slots__ = ("model", "runs", "sampler", "suite", "max_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    SUITE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: str
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    sampler: _common_pb2.Sampler
    suite: str
    max_tokens: int
    def __init__(self, model: _Optional[str] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., sampler: _Optional[_Union[_common_pb2.Sampler, _Mapping]] = ..., suite: _Optional[str] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class MeasureRow(_message.Message):
    __slots__ = ("depth", "tok_s", "ratio_vs_plain", "tokens_per_round", "acceptance_by_position", "round_ms", "ideal_round_ms", "efficiency", "rounds", "runs", "auto", "fan_mode", "thermal", "power")
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    TOK_S_FIELD_NUMBER: _ClassVar[int]
    RATIO_VS_PLAIN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_ROUND_FIELD_NUMBER: _ClassVar[int]
    ACCEPTANCE_BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    ROUND_MS_FIELD_NUMBER: _ClassVar[int]
    IDEAL_ROUND_MS_FIELD_NUMBER: _ClassVar[int]
    EFFICIENCY_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    FAN_MODE_FIELD_NUMBER: _ClassVar[int]
    THERMAL_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    depth: int
    tok_s: float
    ratio_vs_plain: float
    tokens_per_round: float
    acceptance_by_position: _containers.RepeatedScalarFieldContainer[float]
    round_ms: float
    ideal_round_ms: float
    efficiency: float
    rounds: int
    runs: int
    auto: bool
    fan_mode: str
    thermal: str
    power: str
    def __init__(self, depth: _Optional[int] = ..., tok_s: _Optional[float] = ..., ratio_vs_plain: _Optional[float] = ..., tokens_per_round: _Optional[float] = ..., acceptance_by_position: _Optional[_Iterable[float]] = ..., round_ms: _Optional[float] = ..., ideal_round_ms: _Optional[float] = ..., efficiency: _Optional[float] = ..., rounds: _Optional[int] = ..., runs: _Optional[int] = ..., auto: _Optional[bool] = ..., fan_mode: _Optional[str] = ..., thermal: _Optional[str] = ..., power: _Optional[str] = ...) -> None: ...

class Machine(_message.Message):
    __slots__ = ("chip", "memory", "bandwidth_gb_s", "os", "python", "mlx", "cores", "blas", "power", "thermal")
    CHIP_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_GB_S_FIELD_NUMBER: _ClassVar[int]
    OS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    MLX_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    BLAS_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    THERMAL_FIELD_NUMBER: _ClassVar[int]
    chip: str
    memory: int
    bandwidth_gb_s: float
    os: str
    python: str
    mlx: str
    cores: int
    blas: str
    power: str
    thermal: str
    def __init__(self, chip: _Optional[str] = ..., memory: _Optional[int] = ..., bandwidth_gb_s: _Optional[float] = ..., os: _Optional[str] = ..., python: _Optional[str] = ..., mlx: _Optional[str] = ..., cores: _Optional[int] = ..., blas: _Optional[str] = ..., power: _Optional[str] = ..., thermal: _Optional[str] = ...) -> None: ...

class Measurement(_message.Message):
    __slots__ = ("rows", "machine", "model", "sampler", "order", "runs", "suite", "max_tokens", "notes")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    SUITE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[MeasureRow]
    machine: Machine
    model: str
    sampler: _common_pb2.Sampler
    order: _containers.RepeatedScalarFieldContainer[str]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    suite: str
    max_tokens: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rows: _Optional[_Iterable[_Union[MeasureRow, _Mapping]]] = ..., machine: _Optional[_Union[Machine, _Mapping]] = ..., model: _Optional[str] = ..., sampler: _Optional[_Union[_common_pb2.Sampler, _Mapping]] = ..., order: _Optional[_Iterable[str]] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., suite: _Optional[str] = ..., max_tokens: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class MeasureEvent(_message.Message):
    __slots__ = ("progress", "measurement")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MEASUREMENT_FIELD_NUMBER: _ClassVar[int]
    progress: _common_pb2.Progress
    measurement: Measurement
    def __init__(self, progress: _Optional[_Union[_common_pb2.Progress, _Mapping]] = ..., measurement: _Optional[_Union[Measurement, _Mapping]] = ...) -> None: ...
