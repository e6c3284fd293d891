"""Reads the files that say what an answer must match. Whether such an answer exists is the daemon's to judge."""

from __future__ import annotations

import json

from mtplxd.errors import InvalidArgument

LONGEST = 1 << 20
"""Characters; the daemon takes no more."""


def read_schema(path: str | None) -> str | None:
    """The JSON text of a schema file, None without one. Raises InvalidArgument."""
    text = _read(path, "json_schema")
    if text is None:
        return None
    try:
        json.loads(text)
    except RecursionError:
        raise InvalidArgument(
            "the schema is nested too deeply", path, "flatten it", field="json_schema"
        ) from None
    except json.JSONDecodeError as error:
        raise InvalidArgument(
            "the schema is no JSON",
            f"{path}, line {error.lineno}: {error.msg}",
            "mend the file",
            field="json_schema",
        ) from None
    return text


def read_grammar(path: str | None) -> str | None:
    """The text of a grammar file, None without one. Raises InvalidArgument."""
    return _read(path, "grammar")


def _read(path: str | None, field: str) -> str | None:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
    except OSError as error:
        said = f"{path}: {error.strerror}"
        raise InvalidArgument("cannot read the file", said, "give another", field=field) from None
    except ValueError:  # bytes that are no UTF-8, or a path that no file can have
        raise InvalidArgument("the file is not UTF-8 text", path, "convert it", field=field) from None
    if len(text) > LONGEST:
        raise InvalidArgument("the file is too long", path, f"give at most {LONGEST} characters", field=field)
    if not text.strip():
        raise InvalidArgument("the file is empty", path, "give another", field=field)
    return text
