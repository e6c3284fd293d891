"""Answers that must match a structure: the same at every depth, always of the language, and ended when complete."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from mtplxd.engine.decode import Decoder
from mtplxd.engine.events import Logprobs
from mtplxd.engine.grammar import Grammar, Kind, compile_grammar
from mtplxd.engine.request import BLOCK, COUPLED, TOKEN, DraftSampler, Request, SamplerSettings
from mtplxd.families.load import LoadedModel
from support.listening import Listener, ask, assert_ended_with_its_text, decode
from support.scripted_model import scripted_model
from support.table_matcher import TableLanguage

EOS = 2
DEPTHS = [0, 1, 2, 3, 4]
PROMPT = [20, 21, 22]
GREEDY = SamplerSettings(temperature=0.0)
SCHEMA = """{"type": "object", "properties": {"name": {"type": "string", "maxLength": 4},
"age": {"type": "integer", "minimum": 0, "maximum": 120}, "tags": {"type": "array", "items": {"enum": ["the", "and"]},
"maxItems": 2}}, "required": ["name", "age", "tags"], "additionalProperties": false}"""
REGEX = r"([A-Z][a-z]{1,8}[ ,]){2,4}(ende|é+)[!?]"
LARK = 'start: "(" start ")" | start "+" start | NUMBER\nNUMBER: /[0-9]{1,2}/'

Compile = Callable[[Kind, str], Grammar]


@pytest.fixture
def compiled(tiny_model: LoadedModel) -> Compile:
    return lambda kind, text: compile_grammar(kind, text, tiny_model.tokenizer, 300, tiny_model.eos_ids)


def play(request: Request, mask_drafts: bool = True) -> tuple[Decoder, Listener]:
    """Decodes with drafts masked or not; checks what every answer under a structure owes."""
    listener = Listener()
    decoder = Decoder(request, listener, lambda: None, 0.0)
    decoder.batch.mask_drafts = mask_drafts
    finished = decoder.run()
    assert decoder.row.tokens == [*request.prompt, *listener.tokens]
    assert finished.completion_tokens == len(listener.tokens)
    assert_ended_with_its_text(decoder)
    return decoder, listener


def ending(listener: Listener) -> tuple[str, str]:
    return listener.finished.finish_reason, listener.finished.stop_origin


def assert_of_schema(text: str) -> None:
    """SCHEMA, by hand."""
    value = json.loads(text)
    assert list(value) == ["name", "age", "tags"]
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 4
    assert type(value["age"]) is int
    assert 0 <= value["age"] <= 120
    assert len(value["tags"]) <= 2
    assert set(value["tags"]) <= {"the", "and"}


@pytest.mark.parametrize("mask_drafts", [True, False])
@pytest.mark.parametrize(
    ("kind", "text"),
    [("json_schema", SCHEMA), ("regex", REGEX), ("grammar", LARK)],
    ids=["schema", "regex", "lark"],
)
def test_greedy_text_under_a_structure_is_the_same_at_every_depth(
    tiny_model: LoadedModel, compiled: Compile, kind: Kind, text: str, mask_drafts: bool
) -> None:
    grammar = compiled(kind, text)
    for prompt in ([20, 21, 22], list(range(60, 90))):
        found = [
            play(ask(tiny_model, prompt, depth=depth, grammar=grammar, max_tokens=40), mask_drafts)
            for depth in DEPTHS
        ]
        assert {tuple(listener.tokens) for _, listener in found} == {tuple(found[0][1].tokens)}
        assert {ending(listener) for _, listener in found} == {ending(found[0][1])}
        assert any(sum(decoder.row.counts.accepted) for decoder, _ in found) or not mask_drafts


@pytest.mark.parametrize("rule", [TOKEN, BLOCK, COUPLED])
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_sampled_text_always_matches_the_regex(
    tiny_model: LoadedModel, compiled: Compile, depth: int, rule: str
) -> None:
    grammar = compiled("regex", REGEX)
    ended = 0
    for seed in range(4):
        sampler = SamplerSettings(1.3, top_k=50 if seed % 2 else 0, top_p=0.97, seed=seed, acceptance=rule)
        _, listener = play(
            ask(tiny_model, PROMPT, depth=depth, grammar=grammar, sampler=sampler, max_tokens=70)
        )
        if ending(listener)[0] == "stop":
            assert re.fullmatch(REGEX, listener.text), listener.text
            ended += 1
        else:
            assert ending(listener) == ("length", "max_tokens")
    assert ended >= 2


@pytest.mark.parametrize("rule", [TOKEN, BLOCK, COUPLED])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_sampled_text_always_satisfies_the_schema(
    tiny_model: LoadedModel, compiled: Compile, depth: int, rule: str
) -> None:
    """White space is left out by a bias: this model of no sense would make nothing else."""
    grammar = compiled("json_schema", SCHEMA)
    blank = tuple((tiny_model.tokenizer.encode(space)[0], -100.0) for space in " \n\r\t")
    for seed in range(4):
        draft = DraftSampler(0.5, 20 if seed % 2 else None)
        sampler = SamplerSettings(1.0, seed=seed, acceptance=rule, draft=draft, logit_bias=blank)
        _, listener = play(
            ask(tiny_model, PROMPT, depth=depth, grammar=grammar, sampler=sampler, max_tokens=80)
        )
        assert ending(listener) == ("stop", "grammar")
        assert_of_schema(listener.text)


@pytest.mark.parametrize("reproducible", [False, True])
def test_a_seed_means_one_structured_text_at_every_depth(
    tiny_model: LoadedModel, compiled: Compile, reproducible: bool
) -> None:
    grammar = compiled("json_schema", SCHEMA)
    sampler = SamplerSettings(1.0, seed=5, acceptance=COUPLED, reproducible=reproducible)
    found = {
        tuple(
            play(ask(tiny_model, PROMPT, depth=d, grammar=grammar, sampler=sampler, max_tokens=30), mask)[
                1
            ].tokens
        )
        for d in DEPTHS
        for mask in (True, False)
    }
    assert len(found) == 1


def spelled(model: LoadedModel, text: str) -> list[int]:
    """One id a character, or a byte where it has none."""
    return [token for character in text for token in model.tokenizer.encode(character)]


def scripted(model: LoadedModel, ids: list[int], **others: object) -> LoadedModel:
    return scripted_model(model.tokenizer, [*PROMPT, *ids], **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("length", range(1, 8))
def test_a_complete_text_ends_wherever_in_a_round_that_is(
    tiny_model: LoadedModel, compiled: Compile, depth: int, length: int
) -> None:
    model = scripted(tiny_model, spelled(tiny_model, "abcdefghijkl"))
    grammar = compiled("regex", f"[a-l]{{{length}}}")
    _, listener = decode(ask(model, PROMPT, depth=depth, grammar=grammar))
    assert ending(listener) == ("stop", "grammar")
    assert listener.text == "abcdefghijkl"[:length]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_the_token_that_completes_a_text_is_judged_before_the_limit(
    tiny_model: LoadedModel, compiled: Compile, depth: int
) -> None:
    model = scripted(tiny_model, spelled(tiny_model, "abcdef"))
    for limit, expected in ((3, ("length", "max_tokens")), (4, ("stop", "grammar"))):
        request = ask(model, PROMPT, depth=depth, grammar=compiled("regex", "[a-z]{4}"), max_tokens=limit)
        _, listener = decode(request)
        assert ending(listener) == expected
        assert listener.text == "abcdef"[:limit]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_structure_cut_by_the_context_says_length(
    tiny_model: LoadedModel, compiled: Compile, depth: int
) -> None:
    model = scripted(tiny_model, spelled(tiny_model, "abcdefgh"), context=len(PROMPT) + 5)
    _, listener = decode(ask(model, PROMPT, depth=depth, grammar=compiled("regex", "[a-h]+!")))
    assert ending(listener) == ("length", "context")
    assert listener.text == "abcde"


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("place", range(5))
def test_a_model_ends_its_text_where_it_may_and_nowhere_else(
    tiny_model: LoadedModel, compiled: Compile, depth: int, place: int
) -> None:
    """Where the script says stop too early, the lowest id allowed comes in its place."""
    ids = spelled(tiny_model, "bbbbbbbb")
    ids[place] = EOS
    listener = decode(
        ask(scripted(tiny_model, ids), PROMPT, depth=depth, grammar=compiled("regex", "[ab]{3}b*"))
    )[1]
    assert ending(listener) == ("stop", "eos")
    if place >= 3:
        assert listener.tokens == ids[: place + 1]
        assert listener.text == "b" * place
    else:
        assert listener.text == "b" * place + "a" + "b" * (7 - place)
        assert listener.tokens.index(EOS) == 8


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_stop_string_inside_a_structure_is_cut_and_ends_it(
    tiny_model: LoadedModel, compiled: Compile, depth: int
) -> None:
    """It straddles tokens and rounds; usage counts the token that completed it."""
    model = scripted(tiny_model, spelled(tiny_model, "abcdefgh"))
    request = ask(model, PROMPT, depth=depth, grammar=compiled("regex", "[a-h]{7}"), stop=("def",))
    _, listener = decode(request)
    assert ending(listener) == ("stop", "stop_string")
    assert listener.text == "abc"
    assert listener.finished.completion_tokens == 6


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_characters_of_several_tokens_arrive_whole(
    tiny_model: LoadedModel, compiled: Compile, depth: int
) -> None:
    text = '{"a": "é😀→ß"}'
    model = scripted(tiny_model, spelled(tiny_model, text))
    schema = '{"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}'
    _, listener = decode(ask(model, PROMPT, depth=depth, grammar=compiled("json_schema", schema)))
    assert ending(listener) == ("stop", "grammar")
    assert listener.text == text
    assert "\ufffd" not in listener.text


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("follows", [40, EOS], ids=["text", "stop token"])
def test_a_text_that_leads_nowhere_ends_with_an_error_and_sends_no_token_of_it(
    tiny_model: LoadedModel, depth: int, follows: int
) -> None:
    """As where a vocabulary lacks what a grammar asks for; a stop token is no way out."""
    language = TableLanguage([{30: 1}, {31: 2}, {}], frozenset(), size=300, eos=frozenset({EOS}))
    model = scripted(tiny_model, [30, 31, follows, 50, 51, 52])
    decoder, listener = decode(ask(model, PROMPT, depth=depth, grammar=language))
    assert ending(listener) == ("error", "grammar")
    assert "loosen" in listener.finished.message
    assert listener.tokens == [30, 31]
    assert decoder.row.matcher.consumed == [30, 31]


@pytest.mark.parametrize("mask_drafts", [True, False])
def test_structure_penalties_and_bias_together_are_the_same_at_every_depth(
    tiny_model: LoadedModel, compiled: Compile, mask_drafts: bool
) -> None:
    """The mask comes first: no bias brings back what the structure excludes."""
    outside, [inside] = EOS, tiny_model.tokenizer.encode("q")
    shaped = SamplerSettings(
        temperature=0.0,
        repetition_penalty=1.4,
        presence_penalty=0.5,
        frequency_penalty=0.6,
        logit_bias=((outside, 100.0), (1, 100.0), (inside, 6.0)),
    )
    grammar = compiled("regex", "[a-z ]{40}")
    for sampler in (shaped, replace(shaped, temperature=0.9, seed=3, acceptance=COUPLED)):
        texts = {
            play(
                ask(tiny_model, PROMPT, depth=d, grammar=grammar, sampler=sampler, max_tokens=40), mask_drafts
            )[1].text
            for d in DEPTHS
        }
        [text] = texts
        assert re.fullmatch("[a-z ]*", text)
        assert "q" in text
        plain = play(ask(tiny_model, PROMPT, grammar=grammar, max_tokens=40))[1].text
        assert text != plain


@pytest.mark.parametrize("depth", [0, 2])
def test_logprobs_under_a_structure_are_the_models_own_and_the_laws(
    tiny_model: LoadedModel, compiled: Compile, depth: int
) -> None:
    """What only one token may follow was certain by the law, whatever the model thought of it."""
    request = ask(
        tiny_model,
        PROMPT,
        depth=depth,
        grammar=compiled("regex", "qzx"),
        sampler=SamplerSettings(1.0, seed=1),
        logprobs=2,
        law_logprobs=True,
    )
    _, listener = decode(request)
    entries = [entry for event in listener.events if isinstance(event, Logprobs) for entry in event.tokens]
    assert [entry.token for entry in entries] == listener.tokens == spelled(tiny_model, "qzx")
    assert all(entry.law == pytest.approx(0, abs=1e-5) for entry in entries)
    assert all(entry.logprob < -0.1 for entry in entries)
