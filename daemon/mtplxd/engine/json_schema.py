"""What of a JSON schema can be followed: refuses what would be ignored, and schemas that no finite text satisfies.

Pure, and without a tokenizer. Whether a keyword's value makes sense is for the compiler in `grammar` to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from math import lcm
from typing import Any

_FOLLOWED = """
$ref additionalItems additionalProperties allOf anyOf const enum exclusiveMaximum exclusiveMinimum format items
maxItems maxLength maxProperties maximum minItems minLength minProperties minimum multipleOf oneOf pattern
patternProperties prefixItems properties required type
"""
_REMARKS = """
$comment $defs $id $schema default definitions deprecated description examples id readOnly title writeOnly
"""
FOLLOWED = frozenset(_FOLLOWED.split())
"""Keywords that bind the text."""
REMARKS = frozenset(_REMARKS.split())
"""Keywords that bind nothing: leaving them aside ignores nothing."""

_MAPS = ("$defs", "definitions", "properties", "patternProperties")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLES = ("additionalItems", "additionalProperties", "items")
NESTING_LIMIT = 800
"""How deep a compiler may have to go. It has a stack of 8 MiB, ends the process beyond it, and was seen to at twice as
deep; depth is counted as if every reference led one level deeper than the last."""
MULTIPLE_LIMIT = 20_000
"""Most that the numbers of a schema's `multipleOf` may have in common, counted in the last decimal place of any: a
compiler makes a state for each remainder."""
TOGETHER_LIMIT = 12
"""Regexes that one text may have to match at once: each doubles what a compiler does, whatever fuel it is given."""
_BOUNDS = ("exclusiveMaximum", "exclusiveMinimum")
_UNKNOWN_TO = {"const": ("draft-04",), "prefixItems": ("draft-04", "draft-06", "draft-07", "2019-09")}
"""Drafts, as `$schema` names them, in which a keyword means nothing: the compiler then leaves it aside."""


def read_schema(text: str) -> Any:
    """The schema as parsed. Raises ValueError with a reason in one line where it could not be followed exactly."""
    try:
        schema = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    check_schema(schema)
    return schema


def check_schema(schema: Any) -> None:
    """Raises ValueError with a reason in one line for a parsed schema that could not be followed exactly."""
    try:
        _check_keywords(schema)
        if _common_multiple(schema) > MULTIPLE_LIMIT:
            raise ValueError(
                f'the least common multiple of its "multipleOf" is too large: give at most {MULTIPLE_LIMIT}'
            )
        if _count_together(schema) > TOGETHER_LIMIT:
            raise ValueError(f"more than {TOGETHER_LIMIT} patterns may bind one text")
        if count_nesting(schema) > NESTING_LIMIT:
            raise ValueError("nested too deeply, what references name included")
        if not _can_end(schema):
            raise ValueError("unsatisfiable: no finite text matches")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def count_nesting(schema: Any) -> int:
    """How deep a parsed schema nests at most, through all that its references name."""
    parts = {id(part): part for part in (_resolve(schema, name) for name in _references(schema))}
    return _count_levels(schema) + sum(_count_levels(part) for part in parts.values())


def _count_levels(schema: Any) -> int:
    if not isinstance(schema, dict):
        return 1
    return 1 + max(map(_count_levels, _parts(schema)), default=0)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'"{twice}" appears twice in one object')
    return made


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"not JSON: {name}")


def _check_keywords(schema: Any, draft: str = "") -> None:
    if not isinstance(schema, dict):
        return  # true and false are schemas; of anything else the compiler says what is wrong
    if unknown := [name for name in schema if name not in FOLLOWED | REMARKS]:
        raise ValueError(f'keyword "{unknown[0]}" is not supported')
    for name in _BOUNDS:
        if isinstance(schema.get(name), bool):
            raise ValueError(f'"{name}" must be a number')
    draft = str(schema.get("$schema", draft))
    for name, drafts in _UNKNOWN_TO.items():
        if name in schema and any(older in draft for older in drafts):
            raise ValueError(f'keyword "{name}" is not supported by {draft}')
    for part in _parts(schema):
        _check_keywords(part, draft)


def _count_together(root: Any) -> int:
    """Patterns that may bind one text, at most: those of all that is joined at any one place."""
    most = 0
    for node in _nodes(root):
        if "allOf" in node or ("$ref" in node and not node.keys() <= {"$ref", *REMARKS}):
            seen: set[str] = set()
            most = max(most, _count_patterns(root, node, seen))
    return most


def _count_patterns(root: Any, schema: Any, seen: set[str]) -> int:
    """Patterns in a part of a schema and in what it refers to, each reference once."""
    count = 0
    for node in _nodes(schema):
        count += ("pattern" in node) + ("format" in node)
        name = node.get("$ref")
        if isinstance(name, str) and name not in seen:
            seen.add(name)
            count += _count_patterns(root, _resolve(root, name), seen)
    return count


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all of its parts."""
    if isinstance(schema, dict):
        yield schema
        for part in _parts(schema):
            yield from _nodes(part)


def _common_multiple(schema: Any) -> int:
    """Of all numbers that anything is to be a multiple of, in units of the last decimal place of any; 1 without any."""
    asked = [node.get("multipleOf") for node in _nodes(schema)]
    numbers = [
        abs(Decimal(str(number)))
        for number in asked
        if isinstance(number, int | float) and not isinstance(number, bool)
    ]
    places = max((-int(number.as_tuple().exponent) for number in numbers), default=0)
    if any(number.adjusted() + max(places, 0) > len(str(MULTIPLE_LIMIT)) for number in numbers):
        return MULTIPLE_LIMIT + 1
    return lcm(*(int(number.scaleb(max(places, 0))) or 1 for number in numbers))


def _parts(schema: dict[str, Any]) -> Iterator[Any]:
    for name in _MAPS:
        if isinstance(schema.get(name), dict):
            yield from schema[name].values()
    for name in _LISTS:
        yield from _as_list(schema.get(name))
    for name in _SINGLES:
        yield from _as_list(schema.get(name))


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _can_end(root: Any) -> bool:
    """Whether a finite text may satisfy the schema, as far as references tell: the least fixed point over them."""
    named = {name: _resolve(root, name) for name in _references(root)}
    users: dict[str, list[str]] = {}
    for name, node in named.items():
        for used in _references(node):
            users.setdefault(used, []).append(name)
    ending: set[str] = set()
    looking = list(named)
    while looking:
        name = looking.pop()
        if name not in ending and _ends(named[name], ending):
            ending.add(name)
            looking += users.get(name, [])
    return _ends(root, ending)


def _references(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
    return own.union(*map(_references, _parts(schema)))


def _resolve(root: Any, reference: str) -> Any:
    """What a pointer into this schema names; anything else may be satisfied, as far as we know."""
    if not reference.startswith("#"):
        return True
    node = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and name.isdigit() and int(name) < len(node):
            node = node[int(name)]
        elif isinstance(node, dict) and name in node:
            node = node[name]
        else:
            return True
    return node


def _ends(schema: Any, ending: set[str]) -> bool:
    if not isinstance(schema, dict):
        return schema is not False
    if isinstance(schema.get("$ref"), str) and schema["$ref"] not in ending:
        return False
    if not all(_ends(part, ending) for part in _as_list(schema.get("allOf"))):
        return False
    for name in ("anyOf", "oneOf"):
        if (choices := _as_list(schema.get(name))) and not any(_ends(part, ending) for part in choices):
            return False
    kinds = _as_list(schema.get("type"))
    return not kinds or any(_ends_as(kind, schema, ending) for kind in kinds)


def _ends_as(kind: Any, schema: dict[str, Any], ending: set[str]) -> bool:
    if kind == "object":
        named = schema.get("properties")
        named = named if isinstance(named, dict) else {}
        required = [name for name in _as_list(schema.get("required")) if isinstance(name, str)]
        return all(_ends(named[name], ending) for name in required if name in named)
    if kind == "array":
        least = schema.get("minItems")
        if not isinstance(least, int) or least < 1:
            return True
        first, rest = _as_list(schema.get("prefixItems")), schema.get("items", True)
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems", True)
        return all(_ends(part, ending) for part in [*first[:least], *([rest] if least > len(first) else [])])
    return True
