from mtplx_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Pack(_message.Message):
    __slots__ = ("name", "path", "bytes", "family", "tier", "model_type", "bytes_body", "bytes_head", "head_layout", "depth_max", "context", "fingerprint_body", "fingerprint_head", "reasons", "notes", "head_trained")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    MODEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    BYTES_BODY_FIELD_NUMBER: _ClassVar[int]
    BYTES_HEAD_FIELD_NUMBER: _ClassVar[int]
    HEAD_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    DEPTH_MAX_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_BODY_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_HEAD_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    HEAD_TRAINED_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    bytes: int
    family: str
    tier: str
    model_type: str
    bytes_body: int
    bytes_head: int
    head_layout: str
    depth_max: int
    context: int
    fingerprint_body: str
    fingerprint_head: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    notes: _containers.RepeatedScalarFieldContainer[str]
    head_trained: bool
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., bytes: _Optional[int] = ..., family: _Optional[str] = ..., tier: _Optional[str] = ..., model_type: _Optional[str] = ..., bytes_body: _Optional[int] = ..., bytes_head: _Optional[int] = ..., head_layout: _Optional[str] = ..., depth_max: _Optional[int] = ..., context: _Optional[int] = ..., fingerprint_body: _Optional[str] = ..., fingerprint_head: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ..., notes: _Optional[_Iterable[str]] = ..., head_trained: _Optional[bool] = ...) -> None: ...

class Resident(_message.Message):
    __slots__ = ("name", "state", "tier", "bytes_body", "bytes_head", "depth", "keep_alive_s", "in_use", "path", "depth_max", "idle_s", "degraded", "family", "apart", "store", "tuned", "paying", "keep_alive_from", "pinned")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    BYTES_BODY_FIELD_NUMBER: _ClassVar[int]
    BYTES_HEAD_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_S_FIELD_NUMBER: _ClassVar[int]
    IN_USE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    DEPTH_MAX_FIELD_NUMBER: _ClassVar[int]
    IDLE_S_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    APART_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    TUNED_FIELD_NUMBER: _ClassVar[int]
    PAYING_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_FROM_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    tier: str
    bytes_body: int
    bytes_head: int
    depth: int
    keep_alive_s: float
    in_use: int
    path: str
    depth_max: int
    idle_s: float
    degraded: _containers.RepeatedScalarFieldContainer[str]
    family: str
    apart: str
    store: str
    tuned: Tuned
    paying: _common_pb2.Paying
    keep_alive_from: str
    pinned: bool
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., tier: _Optional[str] = ..., bytes_body: _Optional[int] = ..., bytes_head: _Optional[int] = ..., depth: _Optional[int] = ..., keep_alive_s: _Optional[float] = ..., in_use: _Optional[int] = ..., path: _Optional[str] = ..., depth_max: _Optional[int] = ..., idle_s: _Optional[float] = ..., degraded: _Optional[_Iterable[str]] = ..., family: _Optional[str] = ..., apart: _Optional[str] = ..., store: _Optional[str] = ..., tuned: _Optional[_Union[Tuned, _Mapping]] = ..., paying: _Optional[_Union[_common_pb2.Paying, _Mapping]] = ..., keep_alive_from: _Optional[str] = ..., pinned: _Optional[bool] = ...) -> None: ...

class Tuned(_message.Message):
    __slots__ = ("depth", "auto", "ratio", "ci95", "measured_at", "stale", "used")
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    CI95_FIELD_NUMBER: _ClassVar[int]
    MEASURED_AT_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    depth: int
    auto: bool
    ratio: float
    ci95: _containers.RepeatedScalarFieldContainer[float]
    measured_at: str
    stale: bool
    used: bool
    def __init__(self, depth: _Optional[int] = ..., auto: _Optional[bool] = ..., ratio: _Optional[float] = ..., ci95: _Optional[_Iterable[float]] = ..., measured_at: _Optional[str] = ..., stale: _Optional[bool] = ..., used: _Optional[bool] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PullEvent(_message.Message):
    __slots__ = ("progress", "pack")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PACK_FIELD_NUMBER: _ClassVar[int]
    progress: _common_pb2.Progress
    pack: Pack
    def __init__(self, progress: _Optional[_Union[_common_pb2.Progress, _Mapping]] = ..., pack: _Optional[_Union[Pack, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Damaged(_message.Message):
    __slots__ = ("name", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ListReply(_message.Message):
    __slots__ = ("packs", "damaged")
    PACKS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    packs: _containers.RepeatedCompositeFieldContainer[Pack]
    damaged: _containers.RepeatedCompositeFieldContainer[Damaged]
    def __init__(self, packs: _Optional[_Iterable[_Union[Pack, _Mapping]]] = ..., damaged: _Optional[_Iterable[_Union[Damaged, _Mapping]]] = ...) -> None: ...

class ShowRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ShowReply(_message.Message):
    __slots__ = ("pack", "manifest_json")
    PACK_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_JSON_FIELD_NUMBER: _ClassVar[int]
    pack: Pack
    manifest_json: str
    def __init__(self, pack: _Optional[_Union[Pack, _Mapping]] = ..., manifest_json: _Optional[str] = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveReply(_message.Message):
    __slots__ = ("name", "bytes_freed", "pack")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FREED_FIELD_NUMBER: _ClassVar[int]
    PACK_FIELD_NUMBER: _ClassVar[int]
    name: str
    bytes_freed: int
    pack: Pack
    def __init__(self, name: _Optional[str] = ..., bytes_freed: _Optional[int] = ..., pack: _Optional[_Union[Pack, _Mapping]] = ...) -> None: ...

class LoadRequest(_message.Message):
    __slots__ = ("name", "keep_alive_s", "depth", "depth_max", "force", "plain", "store")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_S_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    DEPTH_MAX_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    name: str
    keep_alive_s: float
    depth: _common_pb2.Depth
    depth_max: int
    force: bool
    plain: bool
    store: str
    def __init__(self, name: _Optional[str] = ..., keep_alive_s: _Optional[float] = ..., depth: _Optional[_Union[_common_pb2.Depth, _Mapping]] = ..., depth_max: _Optional[int] = ..., force: _Optional[bool] = ..., plain: _Optional[bool] = ..., store: _Optional[str] = ...) -> None: ...

class LoadEvent(_message.Message):
    __slots__ = ("progress", "resident")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    progress: _common_pb2.Progress
    resident: Resident
    def __init__(self, progress: _Optional[_Union[_common_pb2.Progress, _Mapping]] = ..., resident: _Optional[_Union[Resident, _Mapping]] = ...) -> None: ...

class UnloadRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UnloadReply(_message.Message):
    __slots__ = ("name", "bytes_freed", "resident")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FREED_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    bytes_freed: int
    resident: Resident
    def __init__(self, name: _Optional[str] = ..., bytes_freed: _Optional[int] = ..., resident: _Optional[_Union[Resident, _Mapping]] = ...) -> None: ...
