"""Turns protobuf messages into dataclasses of the same field names, and back.

Owns the one mapping rule: a field is copied by name, nested dataclasses and tuples follow, an absent optional field is
None. Knows no service.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def decode(kind: type[T], message: Any, **outer: Any) -> T:
    """The dataclass `kind` filled from `message`; a field that the message lacks is a programming error.

    `outer` are the values of fields that are marked as no part of the message.
    """
    return kind(**{name: read(message) for name, read in _readers(cast(Any, kind))}, **outer)


def encode(value: Any, message: Any) -> Any:
    """Fill `message` from the dataclass `value` and return it."""
    for spec in dataclasses.fields(value):
        item = getattr(value, spec.name)
        if dataclasses.is_dataclass(item):
            encode(item, getattr(message, spec.name))
        elif isinstance(item, tuple):
            _extend(getattr(message, spec.name), item)
        elif item is not None:
            setattr(message, spec.name, item)
    return message


def _extend(repeated: Any, items: tuple[Any, ...]) -> None:
    for item in items:
        if dataclasses.is_dataclass(item):
            encode(item, repeated.add())
        else:
            repeated.append(item)


@functools.cache
def _readers(kind: Any) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    hints = get_type_hints(kind)
    specs = [spec for spec in dataclasses.fields(kind) if not spec.metadata.get("outer")]
    return tuple((spec.name, _reader(spec.name, hints[spec.name])) for spec in specs)


def _reader(name: str, hint: Any) -> Callable[[Any], Any]:
    if NoneType in (options := get_args(hint)):
        inner = _converter(next(option for option in options if option is not NoneType))
        return lambda message: inner(getattr(message, name)) if message.HasField(name) else None
    convert = _converter(hint)
    return lambda message: convert(getattr(message, name))


def _converter(hint: Any) -> Callable[[Any], Any]:
    if get_origin(hint) is tuple:
        inner = _converter(get_args(hint)[0])
        return lambda items: tuple(inner(item) for item in items)
    if dataclasses.is_dataclass(hint):
        return functools.partial(decode, cast(type[Any], hint))
    return lambda item: item
