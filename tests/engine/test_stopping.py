"""A text ends with the token that completes a stop, inside a round or with a successor in flight, and not later."""

from __future__ import annotations

import pytest
from mtplxd.engine.request import SamplerSettings
from mtplxd.families.load import LoadedModel
from mtplxd.families.tokenizer import Tokenizer
from support.listening import Listener, ask, decode
from support.scripted_model import scripted_model

PROMPT = [20, 21, 22]
EOS = 2
DEPTHS = [0, 1, 3]

pytestmark = pytest.mark.parametrize("depth", DEPTHS)


@pytest.fixture
def tokenizer(tiny_model: LoadedModel) -> Tokenizer:
    return tiny_model.tokenizer


def spelled(tokenizer: Tokenizer, text: str) -> list[int]:
    """One id a character."""
    return [tokenizer.backend.token_to_id(character.replace(" ", "Ġ")) for character in text]


def answered(tokenizer: Tokenizer, ids: list[int], depth: int, **others: object) -> Listener:
    model = scripted_model(tokenizer, [*PROMPT, *ids], context=others.pop("context", 400))  # type: ignore[arg-type]
    _, listener = decode(ask(model, PROMPT, depth=depth, **others))
    return listener


def ending(listener: Listener) -> tuple[str, str]:
    return listener.finished.finish_reason, listener.finished.stop_origin


@pytest.mark.parametrize("place", range(6))
def test_a_stop_token_anywhere_in_a_round_is_the_last_token(
    tokenizer: Tokenizer, depth: int, place: int
) -> None:
    ids = spelled(tokenizer, "abcdefghij")
    ids[place] = EOS
    listener = answered(tokenizer, ids, depth)
    assert ending(listener) == ("stop", "eos")
    assert listener.tokens == ids[: place + 1]
    assert listener.text == "abcdefghij"[:place]


def test_a_stop_token_is_a_token_like_others_when_ignored(tokenizer: Tokenizer, depth: int) -> None:
    ids = spelled(tokenizer, "abcdef")
    ids[2] = EOS
    listener = answered(tokenizer, ids, depth, ignore_eos=True, max_tokens=6)
    assert ending(listener) == ("length", "max_tokens")
    assert listener.tokens == ids
    assert listener.text == "abdef"


@pytest.mark.parametrize("limit", range(1, 9))
def test_the_token_limit_is_exact(tokenizer: Tokenizer, depth: int, limit: int) -> None:
    ids = spelled(tokenizer, "abcdefghijkl")
    listener = answered(tokenizer, ids, depth, max_tokens=limit)
    assert ending(listener) == ("length", "max_tokens")
    assert listener.tokens == ids[:limit]
    assert listener.text == "abcdefghijkl"[:limit]


@pytest.mark.parametrize("room", range(1, 9))
def test_the_context_is_filled_and_never_exceeded(tokenizer: Tokenizer, depth: int, room: int) -> None:
    ids = spelled(tokenizer, "abcdefghijkl")
    listener = answered(tokenizer, ids, depth, context=len(PROMPT) + room)
    assert ending(listener) == ("length", "context")
    assert listener.tokens == ids[:room]


@pytest.mark.parametrize("lead", ["", "x", "xy", "xyz"])
def test_a_stop_string_across_tokens_and_rounds_is_cut_whole(
    tokenizer: Tokenizer, depth: int, lead: str
) -> None:
    ids = spelled(tokenizer, lead + "STOPandmore")
    listener = answered(tokenizer, ids, depth, stop=("STOP",))
    assert ending(listener) == ("stop", "stop_string")
    assert listener.tokens == ids[: len(lead) + 4]
    assert listener.text == lead


def test_a_stop_string_inside_a_token_keeps_the_token_and_cuts_its_text(
    tokenizer: Tokenizer, depth: int
) -> None:
    ids = [*spelled(tokenizer, "x"), tokenizer.backend.token_to_id("and"), *spelled(tokenizer, "yz")]
    listener = answered(tokenizer, ids, depth, stop=("n",))
    assert ending(listener) == ("stop", "stop_string")
    assert listener.tokens == ids[:2]
    assert listener.text == "xa"


def test_of_overlapping_stop_strings_the_first_to_be_complete_ends_the_text(
    tokenizer: Tokenizer, depth: int
) -> None:
    listener = answered(tokenizer, spelled(tokenizer, "zabcd"), depth, stop=("abcd", "bc"))
    assert listener.text == "za"
    assert len(listener.tokens) == 4


def test_a_stop_string_that_never_completes_is_shown(tokenizer: Tokenizer, depth: int) -> None:
    listener = answered(tokenizer, [*spelled(tokenizer, "abEN"), EOS], depth, stop=("END",))
    assert ending(listener) == ("stop", "eos")
    assert listener.text == "abEN"


def test_no_event_ever_shows_a_part_of_the_stop_string(tokenizer: Tokenizer, depth: int) -> None:
    listener = answered(tokenizer, spelled(tokenizer, "aSTxSTOb"), depth, stop=("STO",))
    shown = ""
    for event in listener.events:
        shown += getattr(event, "text", "")
        assert "aSTx".startswith(shown)
    assert shown == "aSTx"


def test_a_stop_string_wins_over_the_limit_reached_with_the_same_token(
    tokenizer: Tokenizer, depth: int
) -> None:
    listener = answered(tokenizer, spelled(tokenizer, "abST"), depth, stop=("ST",), max_tokens=4)
    assert ending(listener) == ("stop", "stop_string")
    assert listener.text == "ab"


def test_a_stop_in_a_round_ends_the_counts_where_the_text_ends(tokenizer: Tokenizer, depth: int) -> None:
    ids = spelled(tokenizer, "abcdefgh")
    ids[1] = EOS
    stats = answered(tokenizer, ids, depth).finished.stats
    # Both tokens of a round of depth 1 count; a round of depth 3 was decided for two of its three drafts.
    assert (stats.drafted, stats.accepted) == {0: (0, 0), 1: (1, 1), 3: (2, 2)}[depth]


def test_the_same_ends_are_reached_by_sampling(tokenizer: Tokenizer, depth: int) -> None:
    ids = spelled(tokenizer, "hello STOP")
    listener = answered(tokenizer, ids, depth, stop=("STOP",), sampler=SamplerSettings(0.7, 0.9, seed=5))
    assert ending(listener) == ("stop", "stop_string")
    assert listener.text == "hello "
