from mtplx_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Session(_message.Message):
    __slots__ = ("name", "model", "tokens", "bytes", "created_unix_s", "updated_unix_s", "turns", "messages", "busy", "forked_from", "notices")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    UPDATED_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    model: str
    tokens: int
    bytes: int
    created_unix_s: float
    updated_unix_s: float
    turns: int
    messages: int
    busy: bool
    forked_from: str
    notices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., model: _Optional[str] = ..., tokens: _Optional[int] = ..., bytes: _Optional[int] = ..., created_unix_s: _Optional[float] = ..., updated_unix_s: _Optional[float] = ..., turns: _Optional[int] = ..., messages: _Optional[int] = ..., busy: _Optional[bool] = ..., forked_from: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ...) -> None: ...

class SessionMessage(_message.Message):
    __slots__ = ("role", "content", "turn", "tokens")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    turn: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., turn: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class SessionTurn(_message.Message):
    __slots__ = ("turn", "model", "at_unix_s", "finish_reason", "stop_origin", "usage", "sampler_json")
    TURN_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_ORIGIN_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_JSON_FIELD_NUMBER: _ClassVar[int]
    turn: int
    model: str
    at_unix_s: float
    finish_reason: str
    stop_origin: str
    usage: _common_pb2.Usage
    sampler_json: str
    def __init__(self, turn: _Optional[int] = ..., model: _Optional[str] = ..., at_unix_s: _Optional[float] = ..., finish_reason: _Optional[str] = ..., stop_origin: _Optional[str] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]] = ..., sampler_json: _Optional[str] = ...) -> None: ...

class SessionListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SessionListReply(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ...) -> None: ...

class SessionShowRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class SessionShown(_message.Message):
    __slots__ = ("session", "messages", "turns")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    session: Session
    messages: _containers.RepeatedCompositeFieldContainer[SessionMessage]
    turns: _containers.RepeatedCompositeFieldContainer[SessionTurn]
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., messages: _Optional[_Iterable[_Union[SessionMessage, _Mapping]]] = ..., turns: _Optional[_Iterable[_Union[SessionTurn, _Mapping]]] = ...) -> None: ...

class SessionRenameRequest(_message.Message):
    __slots__ = ("name", "to")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    name: str
    to: str
    def __init__(self, name: _Optional[str] = ..., to: _Optional[str] = ...) -> None: ...

class SessionRemoveRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class SessionRemoved(_message.Message):
    __slots__ = ("session", "bytes_freed")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FREED_FIELD_NUMBER: _ClassVar[int]
    session: Session
    bytes_freed: int
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., bytes_freed: _Optional[int] = ...) -> None: ...
