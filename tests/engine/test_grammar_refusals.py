"""A structure that cannot be followed exactly is refused by name before any work, in one line that says why."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from mtplxd.engine.grammar import TEXT_LIMIT, Kind, compile_grammar
from mtplxd.errors import InvalidArgument
from mtplxd.families.load import LoadedModel

NESTED = '{"allOf": [' * 5000


def refuse(model: LoadedModel, kind: Kind, text: str) -> str:
    with pytest.raises(InvalidArgument) as caught:
        compile_grammar(kind, text, model.tokenizer, model.target.vocab_size, model.eos_ids)
    assert caught.value.field == kind
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 400
    assert message.endswith(": change it or leave it out")
    return message


def accept(model: LoadedModel, kind: Kind, text: str) -> None:
    grammar = compile_grammar(kind, text, model.tokenizer, model.target.vocab_size, model.eos_ids)
    assert grammar.start().mask().any()


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"type": "integer"} extra', "not JSON"),
        ('{"minimum": NaN}', "not JSON: NaN"),
        ('{"maximum": -Infinity}', "not JSON: -Infinity"),
        (NESTED, "nested too deeply"),
        ("[]", "must be an object or boolean"),
        ("3", "must be an object or boolean"),
        ('{"type": "foo"}', "Invalid type: foo"),
        ('{"type": "integer", "minimum": "a"}', "minimum"),
        ('{"properties": 3}', "properties must be an object"),
        ('{"type": "string", "pattern": "("}', "unclosed group"),
        ('{"type": "string", "format": "shoe-size"}', "Unknown format"),
        ('{"$ref": "http://example.org/schema"}', "not present"),
        ('{"type": "string", "type": "integer"}', '"type" appears twice'),
    ],
)
def test_a_schema_that_is_none(tiny_model: LoadedModel, schema: str, reason: str) -> None:
    assert reason in refuse(tiny_model, "json_schema", schema)


@pytest.mark.parametrize(
    "schema",
    [
        '{"not": {"type": "string"}}',
        '{"if": {}, "then": {}}',
        '{"type": "array", "uniqueItems": true}',
        '{"type": "array", "contains": {}}',
        '{"dependentRequired": {"a": ["b"]}}',
        '{"type": "object", "propertyNames": {"pattern": "a"}}',
        '{"type": "object", "unevaluatedProperties": false}',
        '{"type": "string", "maxLenght": 3}',
        '{"type": "string", "nullable": true}',
        '{"type": "string", "contentEncoding": "base64"}',
        '{"x-guidance": {"lenient": true}, "type": "string"}',
        '{"$anchor": "here", "type": "string"}',
        '{"properties": {"a": {"items": {"anyOf": [{"not": {}}]}}}}',
        '{"properties": {"a": {"additionalProperties": {"not": {}}}}}',
        '{"type": "array", "prefixItems": [{"patternProperties": {"^a": {"oneOf": [{"not": {}}]}}}]}',
        '{"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}}',
        '{"$ref": "#/definitions/a", "definitions": {"a": {"allOf": [{"not": {}}]}}}',
        '{"type": "integer", "minimum": 1, "exclusiveMinimum": true}',
        '{"$schema": "http://json-schema.org/draft-04/schema#", "const": 3}',
        '{"$schema": "http://json-schema.org/draft-07/schema#", "items": {"prefixItems": [{"type": "integer"}]}}',
        '{"$schema": "https://json-schema.org/draft/2019-09/schema", "prefixItems": [true]}',
        '{"oneOf": [{"type": "integer"}, {"type": "number"}]}',
        '{"type": "object", "minProperties": 3, "properties": {"a": {}}, "additionalProperties": false}',
    ],
)
def test_what_a_schema_asks_for_is_never_left_aside(tiny_model: LoadedModel, schema: str) -> None:
    assert "support" in (message := refuse(tiny_model, "json_schema", schema)) or "must be" in message


@pytest.mark.parametrize(
    "schema",
    [
        "false",
        '{"enum": []}',
        '{"type": "integer", "minimum": 3, "maximum": 1}',
        '{"type": "integer", "minimum": 1.5, "maximum": 1.9}',
        '{"type": "string", "minLength": 3, "maxLength": 2}',
        '{"type": "string", "pattern": "^a$", "minLength": 3}',
        '{"allOf": [{"type": "integer"}, {"type": "string"}]}',
        '{"type": "object", "required": ["x"], "properties": {"x": false}}',
        '{"type": "array", "items": false, "minItems": 1}',
        '{"$ref": "#"}',
        '{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}',
        '{"type": "array", "items": {"$ref": "#"}, "minItems": 1}',
        '{"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1}',
        '{"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],'
        ' "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}',
        '{"allOf": [{"type": "object"}, {"$ref": "#/$defs/~1"}], "$defs": {"/": {"$ref": "#/$defs/~1"}}}',
    ],
)
def test_a_schema_that_no_text_satisfies(tiny_model: LoadedModel, schema: str) -> None:
    assert "atisf" in (message := refuse(tiny_model, "json_schema", schema)) or "incompatible" in message


@pytest.mark.parametrize(
    "schema",
    [
        "true",
        "{}",
        '{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "a", "description": "b",'
        ' "default": 1, "examples": [1], "$comment": "c", "type": "integer"}',
        '{"type": "object", "properties": {"not": {"type": "string"}, "a": {"const": {"uniqueItems": 1}}}}',
        '{"type": "object", "properties": {"a": {"enum": [{"if": 1}]}}, "required": ["a"]}',
        '{"type": "object", "properties": {"next": {"$ref": "#"}}}',
        '{"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["a"]}',
        '{"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]}',
        '{"type": "array", "items": {"$ref": "#"}}',
        '{"oneOf": [{"type": "integer"}, {"type": "string"}]}',
    ],
)
def test_a_schema_that_can_be_followed(tiny_model: LoadedModel, schema: str) -> None:
    accept(tiny_model, "json_schema", schema)


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("(", "unclosed group"),
        ("a**{", "repetition"),
        ("(?!a)b", "look-around"),
        (r"\bfoo", "not supported"),
        (r"(a)\1", "backreferences"),
        ("x^y", "not supported"),
        (r"[^\s\S]", "no text matches"),
        (r"a[^\s\S]", "no text matches"),
        ("", "only the empty text"),
        ("a{0}", "only the empty text"),
        ("^$", "only the empty text"),
    ],
)
def test_a_regex_that_cannot_be_followed(tiny_model: LoadedModel, regex: str, reason: str) -> None:
    assert reason in refuse(tiny_model, "regex", regex)


@pytest.mark.parametrize(
    ("lark", "reason"),
    [
        ("", "no start rule"),
        ('begin: "a"', "no start rule"),
        ("start: word", "line 1: unknown name"),
        ('\n\nstart: "a', "line 3: lexer error"),
        ("start: <|nobody|>", 'unknown special token: "<|nobody|>"'),
        ('start: ""', "only the empty text"),
        ("start: A\nA: /a/ & /b/", "no text matches"),
        ("start: @other", "unknown grammar"),
        ("start: <|im_end|>", "no text matches"),
        ('start: word\nword[temperature=0.5]: "a"', '"temperature" is not supported'),
        ('start: word\nword[capture, stop="x"]: /a+/', '"stop" is not supported'),
        ('%llguidance {"no_forcing": false}\nstart: "a"', "options are not supported"),
        ('start: %json {"not": {}}', '"not" is not supported'),
        ('start: "a" %json {"x-guidance": {"lenient": true}}', "not supported"),
        ('start: %json {"$ref": "#"}', "no finite text"),
        ('start: %json {"type": }', "line 1"),
        ('start: word\nword[capture="x[", temperature=0.5]: "a"', '"temperature" is not supported'),
        # Looked at once: a reading that begins anew at each piece would take hours for these.
        ('start: "a" ' + "[" * 100_000, "nest too deeply"),
        ('start: "' + '\\"' * 60_000, "line 1"),
        ("start: " + "%json [1," * 12_000, "expected value"),
        ('{"grammars": [{"json_schema": {"not": {}}}]}', ""),
    ],
)
def test_a_grammar_that_cannot_be_followed(tiny_model: LoadedModel, lark: str, reason: str) -> None:
    assert reason in refuse(tiny_model, "grammar", lark)


@pytest.mark.parametrize(
    "lark",
    [
        'start: "[stop=1]" // [temperature=1]',
        "start: word # %llguidance\nword: /[a-z]+[0-9 temperature=]/",
        'start: "a" %json {"type": "integer"} "%json {"',
        "start: <|im_start|> /a+/",
        "start: word\nword[max_tokens=3]: /[a-z]*/",
    ],
)
def test_what_only_looks_like_a_fault_is_none(tiny_model: LoadedModel, lark: str) -> None:
    accept(tiny_model, "grammar", lark)


def test_a_reason_names_no_option_that_nobody_can_set(tiny_model: LoadedModel) -> None:
    message = refuse(tiny_model, "json_schema", '{"oneOf": [{"type": "integer"}, {"type": "number"}]}')
    assert "(oneOf constraints are not supported)" in message


def test_every_kind_names_itself_in_the_refusal(tiny_model: LoadedModel) -> None:
    for kind in get_args(Kind):
        assert kind.replace("json_schema", "JSON schema") in refuse(tiny_model, kind, "")


def test_a_text_without_end_is_refused_unread(tiny_model: LoadedModel) -> None:
    for kind in get_args(Kind):
        with pytest.raises(InvalidArgument, match=f"too long.*give at most {TEXT_LIMIT}") as caught:
            compile_grammar(kind, "a" * (TEXT_LIMIT + 1), tiny_model.tokenizer, 100, frozenset())
        assert caught.value.field == kind


def chain_schema(count: int, last: str) -> str:
    links = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(count)}
    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**links, f"d{count}": {"$ref": last}}})


def chain_lark(count: int) -> str:
    return "start: r0\n" + "".join(f'r{i}: "a" r{i + 1}\n' for i in range(count)) + f'r{count}: "b"\n'


def test_what_references_name_may_nest_only_as_deep_as_a_compiler_can_go(tiny_model: LoadedModel) -> None:
    """Deeper ones end the process: nothing may reach the compiler."""
    accept(tiny_model, "json_schema", chain_schema(200, "#/$defs/d0"))
    accept(tiny_model, "grammar", chain_lark(500))
    for count in (1000, 1500, 2000):
        assert "nested too deeply" in refuse(tiny_model, "json_schema", chain_schema(count, "#/$defs/d0"))
        assert "nested too deeply" in refuse(
            tiny_model, "grammar", f"start: %json {chain_schema(count, '#')}"
        )
        assert "may nest too deeply" in refuse(tiny_model, "grammar", chain_lark(count))
    assert "may nest too deeply" in refuse(tiny_model, "grammar", 'start: "a" ' + '("b") ' * 4000)


HEAVY: list[tuple[Kind, str, str]] = [
    ("json_schema", '{"type": "integer", "multipleOf": 999983}', "multipleOf"),
    ("json_schema", '{"allOf": [{"multipleOf": 997}, {"multipleOf": 991}], "type": "integer"}', "multipleOf"),
    (
        "json_schema",
        '{"properties": {"a": {"multipleOf": 1e308}, "b": {"multipleOf": 1e-300}}}',
        "multipleOf",
    ),
    ("json_schema", json.dumps({"allOf": [{"pattern": f"x{i}"} for i in range(40)]}), "12 patterns"),
    (
        "json_schema",
        json.dumps(
            {
                "$ref": "#/$defs/0",
                "$defs": {str(i): {"pattern": f"x{i}", "$ref": f"#/$defs/{i + 1}"} for i in range(40)},
            }
        ),
        "12 patterns",
    ),
    ("grammar", "start: A\nA: " + " & ".join(f"/.*x{i}.*/" for i in range(40)), "12 patterns"),
    ("grammar", 'start: %json {"type": "integer", "multipleOf": 999983}', "multipleOf"),
]


@pytest.mark.parametrize(("kind", "text", "reason"), HEAVY)
def test_what_would_take_minutes_to_compile_is_refused_at_once(
    tiny_model: LoadedModel, kind: Kind, text: str, reason: str
) -> None:
    """Each of them kept the compiler busy for a minute or more."""
    assert reason in refuse(tiny_model, kind, text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("regex", "(a|b)*a(a|b){20}"),
        ("regex", "(a{1,1000}){1,1000}"),
        ("json_schema", '{"type": "string", "pattern": "(a|b)*a(a|b){20}"}'),
        ("json_schema", '{"type": "integer", "multipleOf": 10000}'),
        ("json_schema", '{"type": "number", "multipleOf": 0.01}'),
        ("json_schema", json.dumps({"properties": {f"k{i}": {"pattern": f"x{i}"} for i in range(40)}})),
        ("json_schema", json.dumps({"anyOf": [{"pattern": f"x{i}"} for i in range(40)]})),
        ("grammar", 'start: "&&&&&&&&&&&&&&&" /[&]{20}/'),
    ],
)
def test_what_only_looks_heavy_is_followed(tiny_model: LoadedModel, kind: Kind, text: str) -> None:
    accept(tiny_model, kind, text)


def test_a_grammar_too_large_for_its_first_mask_says_so(tiny_model: LoadedModel) -> None:
    """And not that no text matches."""
    members = {f"k{i}": {"type": "string"} for i in range(2500)}
    message = refuse(tiny_model, "json_schema", json.dumps({"type": "object", "properties": members}))
    assert "Too many items" in message
