from mtplx_proto.v1 import common_pb2 as _common_pb2
from mtplx_proto.v1 import tuning_pb2 as _tuning_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProbeRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ProbeReply(_message.Message):
    __slots__ = ("verdict", "reasons", "document_json")
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_JSON_FIELD_NUMBER: _ClassVar[int]
    verdict: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    document_json: str
    def __init__(self, verdict: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ..., document_json: _Optional[str] = ...) -> None: ...

class Override(_message.Message):
    __slots__ = ("layers", "bits")
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    layers: str
    bits: int
    def __init__(self, layers: _Optional[str] = ..., bits: _Optional[int] = ...) -> None: ...

class TrainRequest(_message.Message):
    __slots__ = ("method", "prompts", "tokens", "steps", "seed")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    method: str
    prompts: str
    tokens: int
    steps: int
    seed: int
    def __init__(self, method: _Optional[str] = ..., prompts: _Optional[str] = ..., tokens: _Optional[int] = ..., steps: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...

class BuildRequest(_message.Message):
    __slots__ = ("source", "name", "body_bits", "group_size", "dtype", "overrides", "train", "training", "quick", "depths", "head_bits", "allow_degraded_head", "quality_floor", "on_battery", "detach", "accept_throttled", "no_fans", "auto")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BODY_BITS_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    QUICK_FIELD_NUMBER: _ClassVar[int]
    DEPTHS_FIELD_NUMBER: _ClassVar[int]
    HEAD_BITS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DEGRADED_HEAD_FIELD_NUMBER: _ClassVar[int]
    QUALITY_FLOOR_FIELD_NUMBER: _ClassVar[int]
    ON_BATTERY_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_THROTTLED_FIELD_NUMBER: _ClassVar[int]
    NO_FANS_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    source: str
    name: str
    body_bits: int
    group_size: int
    dtype: str
    overrides: _containers.RepeatedCompositeFieldContainer[Override]
    train: bool
    training: TrainRequest
    quick: bool
    depths: _containers.RepeatedScalarFieldContainer[int]
    head_bits: int
    allow_degraded_head: bool
    quality_floor: float
    on_battery: bool
    detach: bool
    accept_throttled: bool
    no_fans: bool
    auto: bool
    def __init__(self, source: _Optional[str] = ..., name: _Optional[str] = ..., body_bits: _Optional[int] = ..., group_size: _Optional[int] = ..., dtype: _Optional[str] = ..., overrides: _Optional[_Iterable[_Union[Override, _Mapping]]] = ..., train: _Optional[bool] = ..., training: _Optional[_Union[TrainRequest, _Mapping]] = ..., quick: _Optional[bool] = ..., depths: _Optional[_Iterable[int]] = ..., head_bits: _Optional[int] = ..., allow_degraded_head: _Optional[bool] = ..., quality_floor: _Optional[float] = ..., on_battery: _Optional[bool] = ..., detach: _Optional[bool] = ..., accept_throttled: _Optional[bool] = ..., no_fans: _Optional[bool] = ..., auto: _Optional[bool] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("run", "detach")
    RUN_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    run: str
    detach: bool
    def __init__(self, run: _Optional[str] = ..., detach: _Optional[bool] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class CancelRunReply(_message.Message):
    __slots__ = ("run", "stopped", "bytes_freed")
    RUN_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FREED_FIELD_NUMBER: _ClassVar[int]
    run: str
    stopped: bool
    bytes_freed: int
    def __init__(self, run: _Optional[str] = ..., stopped: _Optional[bool] = ..., bytes_freed: _Optional[int] = ...) -> None: ...

class BuildStep(_message.Message):
    __slots__ = ("run", "step", "progress", "eta_s", "message", "done", "total", "stage")
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ETA_S_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    run: str
    step: str
    progress: float
    eta_s: float
    message: str
    done: int
    total: int
    stage: str
    def __init__(self, run: _Optional[str] = ..., step: _Optional[str] = ..., progress: _Optional[float] = ..., eta_s: _Optional[float] = ..., message: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., stage: _Optional[str] = ...) -> None: ...

class BuildOutcome(_message.Message):
    __slots__ = ("run", "name", "verdict", "failure_reasons", "pack", "message", "rows", "machine", "drift", "depth", "auto", "notes", "details_json", "took_s")
    RUN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASONS_FIELD_NUMBER: _ClassVar[int]
    PACK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    DETAILS_JSON_FIELD_NUMBER: _ClassVar[int]
    TOOK_S_FIELD_NUMBER: _ClassVar[int]
    run: str
    name: str
    verdict: str
    failure_reasons: _containers.RepeatedScalarFieldContainer[str]
    pack: str
    message: str
    rows: _containers.RepeatedCompositeFieldContainer[_tuning_pb2.TuneRow]
    machine: _tuning_pb2.Machine
    drift: _tuning_pb2.Drift
    depth: int
    auto: bool
    notes: _containers.RepeatedScalarFieldContainer[str]
    details_json: str
    took_s: float
    def __init__(self, run: _Optional[str] = ..., name: _Optional[str] = ..., verdict: _Optional[str] = ..., failure_reasons: _Optional[_Iterable[str]] = ..., pack: _Optional[str] = ..., message: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[_tuning_pb2.TuneRow, _Mapping]]] = ..., machine: _Optional[_Union[_tuning_pb2.Machine, _Mapping]] = ..., drift: _Optional[_Union[_tuning_pb2.Drift, _Mapping]] = ..., depth: _Optional[int] = ..., auto: _Optional[bool] = ..., notes: _Optional[_Iterable[str]] = ..., details_json: _Optional[str] = ..., took_s: _Optional[float] = ...) -> None: ...

class BuildEvent(_message.Message):
    __slots__ = ("step", "outcome")
    STEP_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    step: BuildStep
    outcome: BuildOutcome
    def __init__(self, step: _Optional[_Union[BuildStep, _Mapping]] = ..., outcome: _Optional[_Union[BuildOutcome, _Mapping]] = ...) -> None: ...

class RunsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BuildRun(_message.Message):
    __slots__ = ("run", "name", "source", "status", "step", "progress", "eta_s", "message", "verdict", "failure_reasons", "error", "created_unix_s", "updated_unix_s", "resumable", "bytes")
    RUN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ETA_S_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_REASONS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    UPDATED_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    RESUMABLE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    run: str
    name: str
    source: str
    status: str
    step: str
    progress: float
    eta_s: float
    message: str
    verdict: str
    failure_reasons: _containers.RepeatedScalarFieldContainer[str]
    error: str
    created_unix_s: float
    updated_unix_s: float
    resumable: bool
    bytes: int
    def __init__(self, run: _Optional[str] = ..., name: _Optional[str] = ..., source: _Optional[str] = ..., status: _Optional[str] = ..., step: _Optional[str] = ..., progress: _Optional[float] = ..., eta_s: _Optional[float] = ..., message: _Optional[str] = ..., verdict: _Optional[str] = ..., failure_reasons: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ..., created_unix_s: _Optional[float] = ..., updated_unix_s: _Optional[float] = ..., resumable: _Optional[bool] = ..., bytes: _Optional[int] = ...) -> None: ...

class RunsReply(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[BuildRun]
    def __init__(self, runs: _Optional[_Iterable[_Union[BuildRun, _Mapping]]] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("name", "repo", "dry_run")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REPO_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    name: str
    repo: str
    dry_run: bool
    def __init__(self, name: _Optional[str] = ..., repo: _Optional[str] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class Published(_message.Message):
    __slots__ = ("repo", "document_json")
    REPO_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_JSON_FIELD_NUMBER: _ClassVar[int]
    repo: str
    document_json: str
    def __init__(self, repo: _Optional[str] = ..., document_json: _Optional[str] = ...) -> None: ...

class PublishEvent(_message.Message):
    __slots__ = ("progress", "published")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    progress: _common_pb2.Progress
    published: Published
    def __init__(self, progress: _Optional[_Union[_common_pb2.Progress, _Mapping]] = ..., published: _Optional[_Union[Published, _Mapping]] = ...) -> None: ...
