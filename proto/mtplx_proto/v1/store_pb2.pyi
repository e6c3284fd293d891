from mtplx_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StoreStatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Reason(_message.Message):
    __slots__ = ("name", "count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    count: int
    def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class StoreStats(_message.Message):
    __slots__ = ("state", "reason", "folder", "blocks", "bytes", "raw_bytes", "hits", "misses", "miss_reasons", "drop_reasons", "quarantined", "evicted", "reclaimed", "bytes_written", "waiting", "size_limit", "free_floor", "hourly_writes", "queue_limit", "block_tokens", "sessions", "session_bytes", "tokens_found", "tokens_from_disk", "memory_bytes", "block_reads", "unread_reasons")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RAW_BYTES_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    MISSES_FIELD_NUMBER: _ClassVar[int]
    MISS_REASONS_FIELD_NUMBER: _ClassVar[int]
    DROP_REASONS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    RECLAIMED_FIELD_NUMBER: _ClassVar[int]
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    SIZE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    FREE_FLOOR_FIELD_NUMBER: _ClassVar[int]
    HOURLY_WRITES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    SESSION_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FOUND_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FROM_DISK_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_READS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_REASONS_FIELD_NUMBER: _ClassVar[int]
    state: str
    reason: str
    folder: str
    blocks: int
    bytes: int
    raw_bytes: int
    hits: int
    misses: int
    miss_reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    drop_reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    quarantined: int
    evicted: int
    reclaimed: int
    bytes_written: int
    waiting: int
    size_limit: int
    free_floor: int
    hourly_writes: int
    queue_limit: int
    block_tokens: int
    sessions: int
    session_bytes: int
    tokens_found: int
    tokens_from_disk: int
    memory_bytes: int
    block_reads: int
    unread_reasons: _containers.RepeatedCompositeFieldContainer[Reason]
    def __init__(self, state: _Optional[str] = ..., reason: _Optional[str] = ..., folder: _Optional[str] = ..., blocks: _Optional[int] = ..., bytes: _Optional[int] = ..., raw_bytes: _Optional[int] = ..., hits: _Optional[int] = ..., misses: _Optional[int] = ..., miss_reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., drop_reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ..., quarantined: _Optional[int] = ..., evicted: _Optional[int] = ..., reclaimed: _Optional[int] = ..., bytes_written: _Optional[int] = ..., waiting: _Optional[int] = ..., size_limit: _Optional[int] = ..., free_floor: _Optional[int] = ..., hourly_writes: _Optional[int] = ..., queue_limit: _Optional[int] = ..., block_tokens: _Optional[int] = ..., sessions: _Optional[int] = ..., session_bytes: _Optional[int] = ..., tokens_found: _Optional[int] = ..., tokens_from_disk: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., block_reads: _Optional[int] = ..., unread_reasons: _Optional[_Iterable[_Union[Reason, _Mapping]]] = ...) -> None: ...

class StoreVerifyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StoreVerified(_message.Message):
    __slots__ = ("blocks", "bytes", "bad")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    blocks: int
    bytes: int
    bad: int
    def __init__(self, blocks: _Optional[int] = ..., bytes: _Optional[int] = ..., bad: _Optional[int] = ...) -> None: ...

class StoreVerifyEvent(_message.Message):
    __slots__ = ("progress", "verified")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    progress: _common_pb2.Progress
    verified: StoreVerified
    def __init__(self, progress: _Optional[_Union[_common_pb2.Progress, _Mapping]] = ..., verified: _Optional[_Union[StoreVerified, _Mapping]] = ...) -> None: ...

class StorePruneRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StoreClearRequest(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: bool
    def __init__(self, sessions: _Optional[bool] = ...) -> None: ...

class StoreFreed(_message.Message):
    __slots__ = ("bytes_freed", "sessions")
    BYTES_FREED_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    bytes_freed: int
    sessions: int
    def __init__(self, bytes_freed: _Optional[int] = ..., sessions: _Optional[int] = ...) -> None: ...
