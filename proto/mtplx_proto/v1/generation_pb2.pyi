from mtplx_proto.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Message(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class Chat(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("model", "prompt", "chat", "tokens", "raw", "system", "sampler", "max_tokens", "stop", "ignore_eos", "depth", "plain", "force", "logprobs", "law_logprobs", "json_schema", "regex", "grammar", "priority", "n", "session", "session_busy", "store", "keep_alive_s")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    LAW_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    JSON_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_BUSY_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    KEEP_ALIVE_S_FIELD_NUMBER: _ClassVar[int]
    model: str
    prompt: str
    chat: Chat
    tokens: TokenIds
    raw: bool
    system: str
    sampler: _common_pb2.SamplerRequest
    max_tokens: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    ignore_eos: bool
    depth: _common_pb2.Depth
    plain: bool
    force: bool
    logprobs: int
    law_logprobs: bool
    json_schema: str
    regex: str
    grammar: str
    priority: str
    n: int
    session: str
    session_busy: str
    store: str
    keep_alive_s: float
    def __init__(self, model: _Optional[str] = ..., prompt: _Optional[str] = ..., chat: _Optional[_Union[Chat, _Mapping]] = ..., tokens: _Optional[_Union[TokenIds, _Mapping]] = ..., raw: _Optional[bool] = ..., system: _Optional[str] = ..., sampler: _Optional[_Union[_common_pb2.SamplerRequest, _Mapping]] = ..., max_tokens: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., ignore_eos: _Optional[bool] = ..., depth: _Optional[_Union[_common_pb2.Depth, _Mapping]] = ..., plain: _Optional[bool] = ..., force: _Optional[bool] = ..., logprobs: _Optional[int] = ..., law_logprobs: _Optional[bool] = ..., json_schema: _Optional[str] = ..., regex: _Optional[str] = ..., grammar: _Optional[str] = ..., priority: _Optional[str] = ..., n: _Optional[int] = ..., session: _Optional[str] = ..., session_busy: _Optional[str] = ..., store: _Optional[str] = ..., keep_alive_s: _Optional[float] = ...) -> None: ...

class TextDelta(_message.Message):
    __slots__ = ("text", "tokens")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token", "logprob", "text", "top", "law")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    LAW_FIELD_NUMBER: _ClassVar[int]
    token: int
    logprob: float
    text: bytes
    top: _containers.RepeatedCompositeFieldContainer[TopLogprob]
    law: float
    def __init__(self, token: _Optional[int] = ..., logprob: _Optional[float] = ..., text: _Optional[bytes] = ..., top: _Optional[_Iterable[_Union[TopLogprob, _Mapping]]] = ..., law: _Optional[float] = ...) -> None: ...

class TopLogprob(_message.Message):
    __slots__ = ("token", "logprob", "text")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    token: int
    logprob: float
    text: bytes
    def __init__(self, token: _Optional[int] = ..., logprob: _Optional[float] = ..., text: _Optional[bytes] = ...) -> None: ...

class Logprobs(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    def __init__(self, tokens: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ...) -> None: ...

class Kept(_message.Message):
    __slots__ = ("name", "turn", "kept", "forked_from", "notices")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    FORKED_FROM_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    turn: int
    kept: bool
    forked_from: str
    notices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., turn: _Optional[int] = ..., kept: _Optional[bool] = ..., forked_from: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ...) -> None: ...

class Final(_message.Message):
    __slots__ = ("finish_reason", "stop_origin", "usage", "sampler", "stats", "model", "message", "session")
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_ORIGIN_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    finish_reason: str
    stop_origin: str
    usage: _common_pb2.Usage
    sampler: _common_pb2.Sampler
    stats: _common_pb2.Stats
    model: str
    message: str
    session: Kept
    def __init__(self, finish_reason: _Optional[str] = ..., stop_origin: _Optional[str] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping]] = ..., sampler: _Optional[_Union[_common_pb2.Sampler, _Mapping]] = ..., stats: _Optional[_Union[_common_pb2.Stats, _Mapping]] = ..., model: _Optional[str] = ..., message: _Optional[str] = ..., session: _Optional[_Union[Kept, _Mapping]] = ...) -> None: ...

class GenerateEvent(_message.Message):
    __slots__ = ("progress", "text", "logprobs", "final", "choice")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    progress: _common_pb2.Progress
    text: TextDelta
    logprobs: Logprobs
    final: Final
    choice: int
    def __init__(self, progress: _Optional[_Union[_common_pb2.Progress, _Mapping]] = ..., text: _Optional[_Union[TextDelta, _Mapping]] = ..., logprobs: _Optional[_Union[Logprobs, _Mapping]] = ..., final: _Optional[_Union[Final, _Mapping]] = ..., choice: _Optional[int] = ...) -> None: ...
