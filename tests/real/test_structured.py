"""SmolLM2 under structures: its tokens spell what is allowed, and a greedy answer is the same drafted and not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from mtplxd.engine.grammar import Kind, compile_grammar
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.families.tokenizer import Tokenizer
from mtplxd.packs.pack import Pack
from mtplxd.platform.mlx import mx
from support.listening import ask, decode

SIZE, STOPS = 49152, frozenset({0, 2})
SCHEMA = """{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer",
"maximum": 99}, "married": {"type": "boolean"}}, "required": ["name", "age", "married"],
"additionalProperties": false}"""
GOOD = {"name": "Zoë 😀", "age": 41, "married": False}


@pytest.fixture(scope="module")
def tokenizer(real_pack: Pack) -> Tokenizer:
    return Tokenizer(real_pack.path)


@pytest.fixture(scope="module")
def model(real_pack: Pack) -> Iterator[LoadedModel]:
    yield load_model(real_pack)
    mx.synchronize()


def spelled(tokenizer: Tokenizer, kind: Kind, text: str, said: str) -> tuple[int, bool]:
    """How many tokens of what is said are allowed, and whether the text may end there."""
    matcher = compile_grammar(kind, text, tokenizer, SIZE, STOPS).start()
    ids = tokenizer.encode(said)
    taken = next((place for place, id in enumerate(ids) if not matcher.advance(id)), len(ids))
    return len(ids) - taken, bool(matcher.mask()[[0, 2]].all())


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_documents_of_a_schema_are_spelled_whole(tokenizer: Tokenizer, indent: int | None) -> None:
    assert spelled(tokenizer, "json_schema", SCHEMA, json.dumps(GOOD, ensure_ascii=False, indent=indent)) == (
        0,
        True,
    )


@pytest.mark.parametrize("change", [{"age": 100}, {"name": "a" * 13}, {"married": None}, {"other": 1}])
def test_documents_that_break_a_schema_are_not(tokenizer: Tokenizer, change: dict[str, Any]) -> None:
    refused, _ = spelled(tokenizer, "json_schema", SCHEMA, json.dumps(GOOD | change))
    assert refused > 0


def test_no_special_token_and_no_id_beyond_the_vocabulary_is_text(tokenizer: Tokenizer) -> None:
    mask = compile_grammar("regex", "(?s:.)*", tokenizer, SIZE + 8, STOPS).start().mask()
    special = [id for id, token in tokenizer.backend.get_added_tokens_decoder().items() if token.special]
    assert {id for id in special if mask[id]} == STOPS
    assert not mask[SIZE:].any()


@pytest.mark.parametrize(
    ("kind", "text"),
    [("json_schema", SCHEMA), ("regex", r"[A-Z][a-z]+, [A-Z][a-z]+\.")],
    ids=["schema", "regex"],
)
def test_a_greedy_answer_is_the_same_at_every_depth_and_ends_complete(
    model: LoadedModel, kind: Kind, text: str
) -> None:
    grammar = compile_grammar(kind, text, model.tokenizer, model.target.vocab_size, model.eos_ids)
    prompt = model.tokenizer.render_chat(
        [{"role": "user", "content": "Make up a person: name, age, married."}]
    )
    found = [decode(ask(model, prompt, depth=depth, grammar=grammar, max_tokens=48))[1] for depth in (0, 3)]
    assert found[0].tokens == found[1].tokens
    for listener in found:
        assert (listener.finished.finish_reason, listener.finished.stop_origin) == ("stop", "grammar")
    if kind == "regex":
        assert re.fullmatch(text, found[0].text)
    else:
        value = json.loads(found[0].text)
        assert list(value) == ["name", "age", "married"]
        assert len(value["name"]) <= 12
        assert value["age"] <= 99
        assert isinstance(value["married"], bool)
