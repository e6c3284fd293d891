"""Text comes out in whole characters, never shows a part of a stop string, and joins to the text decoded at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mtplxd.engine.text import TextStream
from mtplxd.families.load import LoadedModel
from mtplxd.families.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_model: LoadedModel) -> Tokenizer:
    return tiny_model.tokenizer


def stream(
    tokenizer: Tokenizer, ids: list[int], stops: tuple[str, ...] = (), every: int = 1
) -> tuple[list[str], int]:
    """Deltas, taken after every so many tokens as rounds do, and how many tokens were pushed before the stop."""
    text, deltas = TextStream(tokenizer, stops), []
    pushed = 0
    for token in ids:
        pushed += 1
        stopped = text.push(token)
        if stopped or pushed % every == 0:
            deltas.append(text.take())
        if stopped:
            break
    return [*deltas, text.finish()], pushed


@pytest.fixture(scope="module")
def byte_ids(tokenizer: Tokenizer) -> dict[int, int]:
    """The id of each byte, found by encoding characters that hold it."""
    alphabet = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in alphabet]
    symbols = {byte: chr(byte) for byte in alphabet} | {byte: chr(256 + at) for at, byte in enumerate(rest)}
    return {byte: tokenizer.backend.token_to_id(symbol) for byte, symbol in symbols.items()}


WIDE = "héllo 👩‍👩‍👧 世界 🏴‍☠️ नमस्ते"


def test_characters_split_over_tokens_appear_whole(tokenizer: Tokenizer, byte_ids: dict[int, int]) -> None:
    deltas, _ = stream(tokenizer, [byte_ids[byte] for byte in WIDE.encode()])
    assert "".join(deltas) == WIDE
    assert "�" not in "".join(deltas[:-1])
    assert [delta for delta in deltas if delta] == list(WIDE)


def test_a_character_cut_by_the_end_is_shown_as_decoding_shows_it(
    tokenizer: Tokenizer, byte_ids: dict[int, int]
) -> None:
    ids = [byte_ids[byte] for byte in "ab🎉".encode()[:-1]]
    deltas, _ = stream(tokenizer, ids)
    assert "".join(deltas) == tokenizer.decode(ids) == "ab�"


def test_joined_deltas_equal_the_text_decoded_at_once(tokenizer: Tokenizer) -> None:
    @settings(deadline=None, max_examples=150, derandomize=True, database=None)
    @given(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30), st.integers(1, 5))
    def check(ids: list[int], every: int) -> None:
        deltas, _ = stream(tokenizer, ids, every=every)
        assert "".join(deltas) == tokenizer.decode(ids)

    check()


def test_any_text_survives_the_stream(tokenizer: Tokenizer) -> None:
    @settings(deadline=None, max_examples=75, derandomize=True, database=None)
    @given(st.text(max_size=40), st.integers(1, 4))
    def check(text: str, every: int) -> None:
        deltas, _ = stream(tokenizer, tokenizer.encode(text), every=every)
        assert "".join(deltas) == tokenizer.decode(tokenizer.encode(text))

    check()


def test_stop_strings_cut_at_their_earliest_end_wherever_borders_fall(
    tokenizer: Tokenizer, byte_ids: dict[int, int]
) -> None:
    @settings(deadline=None, max_examples=200, derandomize=True, database=None)
    @given(
        st.text("ab c", max_size=14),
        st.lists(st.text("ab c", min_size=1, max_size=4), min_size=1, max_size=3),
        st.integers(1, 5),
    )
    def check(text: str, stops: list[str], every: int) -> None:
        ids = [byte_ids[byte] for byte in text.encode()]
        deltas, pushed = stream(tokenizer, ids, tuple(stops), every)
        ends = [place + len(stop) for stop in stops for place in [text.find(stop)] if place >= 0]
        if not ends:
            assert "".join(deltas) == text
            return
        first = min(ends)
        begin = min(text[:first].find(stop) for stop in stops if stop in text[:first])
        assert pushed == first
        assert "".join(deltas) == text[:begin]

    check()


def test_what_could_become_a_stop_string_is_held_back_and_released(
    tokenizer: Tokenizer, byte_ids: dict[int, int]
) -> None:
    text = TextStream(tokenizer, ("END",))
    taken = []
    for character in "xEN ENDy":
        stopped = text.push(byte_ids[ord(character)])
        taken.append(text.take())
        if stopped:
            break
    assert taken == ["x", "", "", "EN ", "", "", ""]
    assert text.finish() == ""


def test_an_unfinished_stop_string_is_text_after_all(tokenizer: Tokenizer, byte_ids: dict[int, int]) -> None:
    deltas, _ = stream(tokenizer, [byte_ids[byte] for byte in b"aEN"], ("END",))
    assert deltas == ["a", "", "", "EN"]


def test_a_stop_string_inside_one_token_cuts_inside_it(tokenizer: Tokenizer) -> None:
    token = tokenizer.backend.token_to_id("and")
    deltas, pushed = stream(tokenizer, [tokenizer.backend.token_to_id("x"), token], ("n",))
    assert "".join(deltas) == "xa"
    assert pushed == 2


def test_a_stop_string_of_one_split_character_is_found(
    tokenizer: Tokenizer, byte_ids: dict[int, int]
) -> None:
    ids = [byte_ids[byte] for byte in "ok🛑no".encode()]
    deltas, pushed = stream(tokenizer, ids, ("🛑",))
    assert "".join(deltas) == "ok"
    assert pushed == 2 + len("🛑".encode())


def test_a_stop_string_that_only_the_end_reveals_is_not_shown(
    tokenizer: Tokenizer, byte_ids: dict[int, int]
) -> None:
    cut_short = "�"
    deltas, pushed = stream(tokenizer, [byte_ids[97], byte_ids[0xE2]], (cut_short,))
    assert ("".join(deltas), pushed) == ("a", 2)


def test_special_tokens_are_no_text(tokenizer: Tokenizer, byte_ids: dict[int, int]) -> None:
    deltas, _ = stream(tokenizer, [byte_ids[97], 1, byte_ids[98], 2])
    assert "".join(deltas) == "ab"
