"""Puts plain values into protobuf requests; what the wire cannot carry becomes an InvalidArgument naming the
field.
"""

from __future__ import annotations

from typing import Any

from mtplx_client.errors import InvalidArgument

AUTO = "auto"
_FROM_ONE = {"max_tokens", "depth_max"}
"""Counts for which the wire's 0 means nothing."""


def filled(message: Any, **fields: Any) -> Any:
    """Set each given field (None = absent) of `message` and return it.

    Lists and tuples extend repeated fields.
    """
    for name, value in fields.items():
        if value is None:
            continue
        try:
            if isinstance(value, list | tuple):
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)
        except (TypeError, ValueError):
            raise InvalidArgument(
                f"{name} cannot be used", _shown(value), f"give {_wanted(message, name)}", field=name
            ) from None
    return message


def put_depth(message: Any, depth: int | str | None) -> None:
    """Set a message's `depth` (None = absent, `auto` = the model's own). Raises InvalidArgument naming it."""
    if depth == AUTO:
        message.depth.auto = True
    elif depth is not None:
        try:
            message.depth.fixed = depth
        except (TypeError, ValueError):
            fix = "give a whole number of 0 or more, or auto"
            raise InvalidArgument("depth cannot be used", _shown(depth), fix, field="depth") from None


def put_bias(message: Any, token: int, bias: float) -> None:
    """Fill a LogitBias. Raises InvalidArgument naming the option it came from."""
    try:
        message.token, message.bias = token, bias
    except (TypeError, ValueError):
        raise InvalidArgument(
            "logit_bias cannot be used",
            f"{token!r}: {bias!r}"[:60],
            "give token ids and numbers",
            field="logit_bias",
        ) from None


def _shown(value: Any) -> str:
    """A value short enough for one line; never text that may be a prompt."""
    return "a text of characters that do not exist" if isinstance(value, str) else repr(value)[:60]


def _wanted(message: Any, name: str) -> str:
    field = message.DESCRIPTOR.fields_by_name[name]
    kinds = {
        field.CPPTYPE_UINT32: "a whole number from 0 to 4294967295",
        field.CPPTYPE_UINT64: "a whole number from 0 to 18446744073709551615",
        field.CPPTYPE_INT32: "a whole number below 2147483648",
        field.CPPTYPE_DOUBLE: "a number",
        field.CPPTYPE_BOOL: "true or false",
        field.CPPTYPE_STRING: "valid Unicode text",
    }
    if name == "n":
        return "a whole number from 1 to 16"
    if name in _FROM_ONE:
        return "a whole number from 1 to 4294967295"
    return kinds.get(field.cpp_type, "another value")
