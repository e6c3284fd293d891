"""What may follow, token by token: the ids whose bytes go on with a text of the language, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
from mtplxd.engine import grammar as grammars
from mtplxd.engine.grammar import Grammar, Kind, Matcher, compile_grammar
from mtplxd.families.load import LoadedModel
from mtplxd.families.tokenizer import Tokenizer

EOS = 2
START, END = "<|im_start|>", "<|im_end|>"

SCHEMA = """{"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer"}},
"required": ["name", "age"], "additionalProperties": false}"""

LANGUAGES: dict[str, tuple[Kind, str]] = {
    "schema": ("json_schema", SCHEMA),
    "words": ("regex", r"[A-Z][a-z]{2,5}( the| and){0,3}!"),
    "choice": ("regex", "(foo|bar){1,3}baz"),
    "open": ("regex", "(th|e )*"),
    "letters": ("regex", "[éß→]{1,3}"),
    "nested": ("grammar", 'start: "a" start "b" | "c"'),
    "counted": ("grammar", "start: word number\nword[max_tokens=2]: /[a-z]*/\nnumber: /[0-9]{2}/"),
    "lazy": ("grammar", 'start: "a" word "d"\nword[lazy]: /[a-c]*b/'),
    "special": ("grammar", "start: (<|im_start|> /[a-b]/)+"),
}

Compile = Callable[..., Grammar]


@pytest.fixture
def compiled(tiny_model: LoadedModel) -> Compile:
    def compile_for_tiny(kind: Kind, text: str, size: int = 300, eos: Iterable[int] = (EOS,)) -> Grammar:
        return compile_grammar(kind, text, tiny_model.tokenizer, size, frozenset(eos))

    return compile_for_tiny


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest, compiled: Compile) -> Grammar:
    return compiled(*LANGUAGES[request.param])


@pytest.fixture(scope="module")
def spelling(tiny_model: LoadedModel) -> list[bytes]:
    """The bytes of each id, by the byte-level alphabet's own definition; special tokens have none."""
    alphabet = {character: byte for byte, character in enumerate(byte_alphabet())}
    tokens = [tiny_model.tokenizer.backend.id_to_token(id) for id in range(300)]
    return [b"" if id < 3 else bytes(map(alphabet.__getitem__, token)) for id, token in enumerate(tokens)]


def byte_alphabet() -> list[str]:
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]


def walk(matcher: Matcher, rng: np.random.Generator, count: int) -> list[int]:
    """Up to `count` random steps."""
    taken: list[int] = []
    while len(taken) < count and (choices := text_ids(matcher)):
        token = int(rng.choice(choices))
        assert matcher.advance(token)
        taken.append(token)
    return taken


def text_ids(matcher: Matcher) -> list[int]:
    return [id for id in np.flatnonzero(matcher.mask()).tolist() if id != EOS]


def after(grammar: Grammar, tokens: list[int]) -> Matcher:
    matcher = grammar.start()
    assert all(matcher.advance(token) for token in tokens)
    return matcher


def assert_same_place(one: Matcher, other: Matcher) -> None:
    assert (one.mask() == other.mask()).all()
    assert one.complete == other.complete


@pytest.mark.parametrize(
    ("regex", "words"),
    [
        ("ab?c|that?", ["abc", "ac", "tha", "that"]),
        ("^abc$", ["abc"]),
        ("a+?b{1,2}|c", [*("a" * n + "b" * m for n in range(1, 12) for m in (1, 2)), "c"]),
        ("the|then|thé", ["the", "then", "thé"]),
        ("[xy]é{1,2}→", [x + "é" * n + "→" for x, n in product("xy", (1, 2))]),
    ],
)
def test_allowed_is_what_goes_on_with_a_word_of_the_language(
    compiled: Compile, spelling: list[bytes], regex: str, words: list[str]
) -> None:
    """Against a list of all words (of `a+` all that are long enough to be told apart here)."""
    whole = {word.encode() for word in words}
    begun = {word[:length] for word in whole for length in range(len(word) + 1)}
    grammar, waiting, seen = compiled("regex", regex), [((), b"")], set()
    while waiting:
        tokens, text = waiting.pop()
        if text in seen or len(text) > 7:
            continue
        seen.add(text)
        matcher = after(grammar, list(tokens))
        allowed = {id for id, more in enumerate(spelling) if more and text + more in begun}
        expected = allowed | ({EOS} if text in whole else set())
        assert set(np.flatnonzero(matcher.mask()).tolist()) == expected
        assert matcher.complete == (expected == {EOS})
        waiting += [((*tokens, id), text + spelling[id]) for id in allowed]
    assert len(seen) > len(regex) // 2


def test_advance_takes_what_the_mask_allows_and_nothing_else(language: Grammar) -> None:
    rng = np.random.default_rng(1)
    for _ in range(4):
        matcher = language.start()
        while len(matcher._consumed) < 12 and (choices := text_ids(matcher)):
            mask = matcher.mask()
            for token in range(300):
                taken = matcher.advance(token)
                assert taken == (mask[token] and token != EOS)
                if taken:
                    matcher.roll_back(1)
            assert (matcher.mask() == mask).all()
            assert matcher.advance(int(rng.choice(choices)))


def test_any_steps_taken_back_lead_to_where_they_began(language: Grammar) -> None:
    rng = np.random.default_rng(2)
    for _ in range(6):
        matcher, taken = language.start(), []
        for _ in range(12):
            taken += walk(matcher, rng, int(rng.integers(1, 6)))
            back = int(rng.integers(0, len(taken) + 1))
            matcher.roll_back(back)
            del taken[len(taken) - back :]
            assert_same_place(matcher, after(language, taken))


def test_steps_past_the_end_are_taken_back_too(compiled: Compile) -> None:
    for kind, text in (("regex", "(foo|bar){1,3}baz"), ("json_schema", '{"enum": ["the", "then", 3]}')):
        grammar = compiled(kind, text)
        matcher = grammar.start()
        taken = walk(matcher, np.random.default_rng(3), 40)
        assert matcher.complete
        assert np.flatnonzero(matcher.mask()).tolist() == [EOS]
        assert not any(matcher.advance(token) for token in range(300))
        for count in range(len(taken), 0, -1):
            matcher.roll_back(count)
            assert_same_place(matcher, after(grammar, taken[: len(taken) - count]))
            assert all(matcher.advance(token) for token in taken[len(taken) - count :])
            assert matcher.complete


def test_a_refused_token_changes_nothing(language: Grammar) -> None:
    rng = np.random.default_rng(4)
    matcher = language.start()
    taken = walk(matcher, rng, 3)
    for token in np.flatnonzero(~matcher.mask()).tolist():
        assert not matcher.advance(token)
    assert_same_place(matcher, after(language, taken))
    matcher.roll_back(len(taken))
    assert_same_place(matcher, language.start())


def test_rows_of_one_grammar_know_nothing_of_each_other(language: Grammar) -> None:
    one, other = language.start(), language.start()
    walk(one, np.random.default_rng(5), 5)
    assert_same_place(other, language.start())


def test_every_stop_token_is_allowed_where_the_text_may_end_and_only_there(
    compiled: Compile, tiny_model: LoadedModel
) -> None:
    stops = [0, EOS, 77, 200]
    matcher = compiled("regex", "ab*", eos=stops).start()
    [a], [b] = tiny_model.tokenizer.encode("a"), tiny_model.tokenizer.encode("b")
    assert np.flatnonzero(matcher.mask()).tolist() == [a]
    assert matcher.advance(a)
    assert np.flatnonzero(matcher.mask()).tolist() == sorted([*stops, b])
    matcher.roll_back(1)
    assert not matcher.mask()[stops].any()


def test_a_stop_token_that_spells_text_is_no_text(compiled: Compile, tiny_model: LoadedModel) -> None:
    [a] = tiny_model.tokenizer.encode("a")
    [at] = tiny_model.tokenizer.encode("at")
    matcher = compiled("regex", "(a|at)+", eos=(a,)).start()
    assert np.flatnonzero(matcher.mask()).tolist() == [at]
    assert not matcher.advance(a)
    assert matcher.advance(at)
    assert matcher.mask()[a]


def test_special_tokens_are_text_only_where_the_grammar_names_them(
    compiled: Compile, tiny_model: LoadedModel
) -> None:
    anything = compiled("regex", r"(?s:.)*").start()
    assert np.flatnonzero(anything.mask()[:3]).tolist() == [EOS]
    quoted = compiled("regex", r"<\|im_start\|>a").start()
    assert not quoted.mask()[:3].any()
    assert all(map(quoted.advance, tiny_model.tokenizer._encode_plain(START)))
    named = compiled("grammar", f'start: {START} "a" {END}?').start()
    assert np.flatnonzero(named.mask()).tolist() == [1]
    assert named.advance(1)
    assert np.flatnonzero(named.mask()).tolist() == tiny_model.tokenizer.encode("a")


def test_a_stop_token_that_a_grammar_names_inside_the_text_leads_nowhere(
    compiled: Compile, tiny_model: LoadedModel
) -> None:
    matcher = compiled("grammar", f'start: "a" {END} "b"').start()
    assert matcher.advance(tiny_model.tokenizer.encode("a")[0])
    assert not matcher.mask().any()
    assert not matcher.advance(EOS)
    assert not matcher.complete


def test_ids_beyond_the_tokenizer_are_never_allowed(compiled: Compile) -> None:
    matcher = compiled("grammar", "start: <[*]>+", size=340).start()
    assert matcher.mask().shape == (340,)
    assert not matcher.mask()[300:].any()
    assert not any(matcher.advance(token) for token in range(300, 340))


def test_a_vocabulary_smaller_than_the_tokenizers_is_cut(compiled: Compile) -> None:
    assert compiled("regex", r"(?s:.)*", size=290, eos=(EOS, 295)).start().mask().shape == (290,)


def test_a_characters_bytes_may_be_several_tokens_but_never_half_a_character_at_the_end(
    compiled: Compile, spelling: list[bytes]
) -> None:
    matcher = compiled("regex", "😀|é").start()
    text = b""
    while not matcher.complete:
        assert not matcher.mask()[EOS]
        token = text_ids(matcher)[-1]
        assert matcher.advance(token)
        text += spelling[token]
    assert text.decode() in ("😀", "é")


def test_a_walk_to_the_end_matches_the_whole_regex(compiled: Compile, spelling: list[bytes]) -> None:
    regex = r"[A-Z][a-z]{2,5}( the| and){0,3}!"
    rng = np.random.default_rng(6)
    for _ in range(20):
        matcher = compiled("regex", regex).start()
        tokens = walk(matcher, rng, 100)
        assert re.fullmatch(regex, b"".join(spelling[token] for token in tokens).decode())


def test_a_limit_reached_on_a_path_not_taken_leaves_the_way_back_open(compiled: Compile) -> None:
    """The library never leaves an error: what was committed is then followed anew."""
    grammar = compiled("regex", "(foo|bar){1,3}baz")
    matcher = grammar.start()
    taken = walk(matcher, np.random.default_rng(7), 2)
    matcher.advance(text_ids(matcher)[0])
    matcher._state.rollback(50)  # a step the library cannot take
    assert matcher._state.is_error()
    assert not matcher.mask().any()
    assert not matcher.complete
    matcher.roll_back(1)
    assert_same_place(matcher, after(grammar, taken))


def test_a_tokenizer_is_prepared_once_whoever_asks_first(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    real = grammars._build_tokenizer

    def counted(tokenizer: Tokenizer) -> object:
        built.append(tokenizer)
        return real(tokenizer)

    monkeypatch.setattr(grammars, "_build_tokenizer", counted)
    fresh = Tokenizer(tiny_model.pack.path)
    with ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(lambda _: compile_grammar("regex", "ab+", fresh, 300, frozenset({EOS})), range(16))
        )
    assert built == [fresh]
    for grammar in made[1:]:
        assert_same_place(grammar.start(), made[0].start())
