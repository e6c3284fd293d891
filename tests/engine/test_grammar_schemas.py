"""Every keyword of a JSON schema that is not refused binds the text: a document that breaks it cannot be spelled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mtplxd.engine.grammar import WHITE_SPACE, Grammar, Kind, compile_grammar
from mtplxd.engine.json_schema import FOLLOWED
from mtplxd.errors import InvalidArgument
from mtplxd.families.load import LoadedModel

EOS = 2
INTEGER, NULL = {"type": "integer"}, {"type": "null"}
OBJECT, ARRAY = {"type": "object"}, {"type": "array"}

CASES: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
    ("type", INTEGER, [3, -12, 0], [1.5, "3", True, None, [], {}]),
    ("type", {"type": ["string", "null"]}, ["a", None, ""], [1, False, []]),
    ("const", {"const": {"a": [1, "x"]}}, [{"a": [1, "x"]}], [{"a": [1]}, {}, "x"]),
    ("enum", {"enum": ["the", 3, None]}, ["the", 3, None], ["then", 30, "", False]),
    ("enum", {"enum": ["aaa", "b"], "maxLength": 2}, ["b"], ["aaa", "a"]),
    ("minimum", {"type": "integer", "minimum": 12}, [12, 13, 100], [11, 9, -12]),
    ("minimum", {"minimum": 3}, [3, 4.5, "2"], [2, 2.9, -4]),
    ("maximum", {"type": "number", "maximum": 1.5}, [1.5, -8, 0.25], [1.6, 2, 100]),
    ("exclusiveMinimum", {"type": "number", "exclusiveMinimum": 2}, [2.1, 3], [2, 1, -3]),
    ("exclusiveMaximum", {"type": "integer", "exclusiveMaximum": 10}, [9, -1], [10, 11, 99]),
    ("multipleOf", {"type": "integer", "multipleOf": 7}, [7, 14, 0, -21], [8, 1, 15]),
    ("minLength", {"type": "string", "minLength": 3}, ["abc", "é😀→"], ["", "ab", "é😀"]),
    ("maxLength", {"type": "string", "maxLength": 2}, ["", "é😀"], ["abc"]),
    ("pattern", {"type": "string", "pattern": "^a+[bc]$"}, ["ab", "aac"], ["b", "abb", "a"]),
    ("pattern", {"type": "string", "pattern": "x"}, ["x", "axb"], ["", "ab"]),
    ("format", {"type": "string", "format": "date"}, ["2026-02-28"], ["2026-13-01", "2026-2-8", "x"]),
    ("properties", {"properties": {"a": INTEGER}}, [{"a": 1}, {}, {"b": "x"}, 3], [{"a": "x"}]),
    (
        "required",
        OBJECT | {"properties": {"a": {}, "b": {}}, "required": ["b"]},
        [{"b": 1}, {"a": 1, "b": 2}],
        [{}, {"a": 1}],
    ),
    ("required", OBJECT | {"required": ["c"]}, [{"c": 1}], [{}, {"d": 1}]),
    (
        "additionalProperties",
        OBJECT | {"properties": {"a": {}}, "additionalProperties": False},
        [{}, {"a": 1}],
        [{"b": 1}],
    ),
    ("additionalProperties", OBJECT | {"additionalProperties": NULL}, [{"b": None}], [{"b": 1}]),
    (
        "patternProperties",
        OBJECT | {"patternProperties": {"^n": INTEGER}, "additionalProperties": False},
        [{"n": 1, "no": 2}, {}],
        [{"n": "x"}, {"m": 1}],
    ),
    ("minProperties", OBJECT | {"minProperties": 1, "additionalProperties": INTEGER}, [{"a": 1}], [{}]),
    (
        "maxProperties",
        OBJECT | {"maxProperties": 1, "additionalProperties": INTEGER},
        [{"a": 1}, {}],
        [{"a": 1, "b": 2}],
    ),
    ("items", ARRAY | {"items": INTEGER}, [[], [1, 2]], [["a"], [1, None]]),
    (
        "prefixItems",
        ARRAY | {"prefixItems": [INTEGER, NULL]},
        [[1, None], [1], [1, None, "x"]],
        [["a"], [1, 2]],
    ),
    ("prefixItems", ARRAY | {"prefixItems": [{"const": 1}], "items": False}, [[1], []], [[1, 1], [2]]),
    (
        "additionalItems",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": [INTEGER],
            "additionalItems": NULL,
        },
        [[1], [1, None]],
        [[1, 2], ["a"]],
    ),
    ("minItems", ARRAY | {"minItems": 2, "items": INTEGER}, [[1, 1], [1, 1, 1]], [[], [1]]),
    ("maxItems", ARRAY | {"maxItems": 1}, [[], [1]], [[1, 2]]),
    ("anyOf", {"anyOf": [NULL, {"type": "string", "maxLength": 1}]}, [None, "a"], ["ab", 1]),
    ("oneOf", {"oneOf": [INTEGER, {"type": "string"}]}, [1, "a"], [None, 1.5]),
    ("allOf", {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, [3, 4, 5], [2, 6, "4"]),
    (
        "$ref",
        {
            "$ref": "#/$defs/tree",
            "$defs": {
                "tree": {
                    "type": "object",
                    "properties": {"left": {"$ref": "#/$defs/tree"}},
                    "additionalProperties": False,
                }
            },
        },
        [{}, {"left": {}}, {"left": {"left": {}}}],
        [{"left": 1}, {"right": {}}, {"left": {"left": []}}],
    ),
    ("$ref", {"$ref": "#/definitions/a~1b", "maximum": 5, "definitions": {"a/b": INTEGER}}, [1, 5], ["x", 6]),
]


def may_be(model: LoadedModel, grammar: Grammar, text: str) -> bool:
    """Whether the tokens of a text may be said one after the other, and be all."""
    matcher = grammar.start()
    return all(map(matcher.advance, model.tokenizer.encode(text))) and bool(matcher.mask()[EOS])


def compiled(model: LoadedModel, schema: Any) -> Grammar:
    return compile_grammar("json_schema", json.dumps(schema), model.tokenizer, 300, model.eos_ids)


@pytest.mark.parametrize(("keyword", "schema", "good", "bad"), CASES, ids=[case[0] for case in CASES])
def test_a_keyword_binds_the_text(
    tiny_model: LoadedModel, keyword: str, schema: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    grammar = compiled(tiny_model, schema)
    assert keyword in json.dumps(schema)
    for document in good:
        for spaces in (None, 2):
            assert may_be(tiny_model, grammar, json.dumps(document, ensure_ascii=False, indent=spaces)), (
                document
            )
    for document in bad:
        assert not may_be(tiny_model, grammar, json.dumps(document, ensure_ascii=False)), document


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07", "2019-09", "2020-12"])
def test_an_older_draft_leaves_no_keyword_aside(tiny_model: LoadedModel, draft: str) -> None:
    """What a draft does not know is refused; everything else binds the text as ever."""
    url = f"https://json-schema.org/draft/{draft}/schema"
    if draft.startswith("draft"):
        url = f"http://json-schema.org/{draft}/schema#"
    refused = set()
    for keyword, schema, _, bad in CASES:
        try:
            grammar = compiled(tiny_model, schema | {"$schema": url})
        except InvalidArgument:
            refused.add(keyword)
            continue
        for document in bad:
            assert not may_be(tiny_model, grammar, json.dumps(document, ensure_ascii=False)), (
                keyword,
                document,
            )
    assert refused <= {"const", "prefixItems"}


def test_no_keyword_is_followed_unproved() -> None:
    assert {case[0] for case in CASES} == FOLLOWED


@pytest.mark.parametrize(
    "text", ['{"a": 1', "[1,]", "01", "nul", '"a', "{'a': 1}", "NaN", '"\\x"', "1 2", ""]
)
def test_what_is_not_json_cannot_be_spelled_even_where_anything_goes(
    tiny_model: LoadedModel, text: str
) -> None:
    assert not may_be(tiny_model, compiled(tiny_model, True), text)


@pytest.mark.parametrize("kind", ["json_schema", "grammar"])
@pytest.mark.parametrize(
    ("schema", "before", "after"),
    [
        ('{"type": "object", "properties": {"a": {"enum": [1]}}}', "{", '"a":1}'),
        ('{"type": "object", "properties": {"a": {"enum": [1]}}}', '{"a":', "1}"),
        ('{"type": "object", "properties": {"a": {"enum": [1]}}}', '{"a":1', "}"),
        ("{}", "[", "]"),
        ("true", "[1,", "2]"),
    ],
)
def test_white_space_between_tokens_is_bounded(
    tiny_model: LoadedModel, kind: Kind, schema: str, before: str, after: str
) -> None:
    text = schema if kind == "json_schema" else f'start: %json {schema} "!"\nother: %json {{}}\n'
    end = "" if kind == "json_schema" else "!"
    grammar = compile_grammar(kind, text, tiny_model.tokenizer, 300, tiny_model.eos_ids)
    for blank in " \n\t\r":
        assert may_be(tiny_model, grammar, before + blank * WHITE_SPACE + after + end)
        assert not may_be(tiny_model, grammar, before + blank * (WHITE_SPACE + 1) + after + end)
    assert not may_be(tiny_model, grammar, before + " \n" * WHITE_SPACE + after + end)
