"""Answers of earlier turns are read by the ids they were made of, so that the next prompt begins with what was read
before; where the template shows an answer otherwise, its rule counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mtplxd.families.tokenizer import Tokenizer
from support.tiny_pack import CHAT_TEMPLATE, write_tokenizer

START, END = 1, 2
REASONING = CHAT_TEMPLATE.replace(
    "message['content']",
    "(message['content'].split('</think>')[-1] if not loop.last else message['content'])",
)
TRIMMING = CHAT_TEMPLATE.replace("message['content']", "message['content'] | trim")


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    write_tokenizer(tmp_path)
    return Tokenizer(tmp_path)


def with_template(folder: Path, template: str) -> Tokenizer:
    write_tokenizer(folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))
    return Tokenizer(folder)


def chat(*contents: str) -> list[dict[str, str]]:
    return [
        {"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(contents)
    ]


def letters(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text, a character each: what a model may say and no tokeniser would."""
    return [id for letter in text for id in tokenizer.encode(letter)]


def test_the_next_prompt_begins_with_all_ids_of_the_turn_before(tokenizer: Tokenizer) -> None:
    first = tokenizer.render_chat(chat("and the?"))
    said = letters(tokenizer, "the thing")
    assert said != tokenizer.encode("the thing")
    second = tokenizer.render_chat(chat("and the?", "the thing", "more"), {1: said})
    assert second[: len(first) + len(said) + 1] == [*first, *said, END]
    third = tokenizer.render_chat(
        chat("and the?", "the thing", "more", " of", "x"), {1: said, 3: tokenizer.encode(" of")}
    )
    assert third[: len(second)] == second


def test_the_text_is_the_templates_whatever_the_ids(tokenizer: Tokenizer) -> None:
    messages = chat("a", "the <b> thing", "c")
    plain = tokenizer.render_chat(messages)
    spoken = tokenizer.render_chat(messages, {1: letters(tokenizer, "the <b> thing")})
    assert spoken != plain
    assert tokenizer.decode(spoken) == tokenizer.decode(plain)


@pytest.mark.parametrize(
    "ids",
    [[3, 4], [END], [START, 5], [299, 300], [10**6]],
    ids=["another text", "a stop token", "a special token", "an unknown id", "a huge id"],
)
def test_ids_that_do_not_say_just_the_text_are_left_out(tokenizer: Tokenizer, ids: list[int]) -> None:
    messages = chat("a", "the thing", "c")
    assert tokenizer.render_chat(messages, {1: ids}) == tokenizer.render_chat(messages)


def test_special_ids_hidden_in_a_text_are_left_out(tokenizer: Tokenizer) -> None:
    messages = chat("a", "the thing", "c")
    hidden = [*tokenizer.encode("the"), END, *tokenizer.encode(" thing")]
    assert tokenizer.decode(hidden) == "the thing"
    assert tokenizer.render_chat(messages, {1: hidden}) == tokenizer.render_chat(messages)


def test_a_template_that_drops_reasoning_drops_it_and_keeps_other_turns(tmp_path: Path) -> None:
    tokenizer = with_template(tmp_path, REASONING)
    messages = chat("a", "<think>hm</think>the", "b", "thing", "c")
    ids = {1: letters(tokenizer, "<think>hm</think>the"), 3: letters(tokenizer, "thing")}
    read = tokenizer.render_chat(messages, ids)
    assert "hm" not in tokenizer.decode(read)
    assert tokenizer.decode(read) == tokenizer.decode(tokenizer.render_chat(messages))
    assert read == tokenizer.render_chat(messages, {3: ids[3]})
    assert read != tokenizer.render_chat(messages)


def test_a_template_that_trims_gets_its_way_only_where_there_is_something_to_trim(tmp_path: Path) -> None:
    tokenizer = with_template(tmp_path, TRIMMING)
    messages = chat("a", " the", "b", "the", "c")
    ids = {1: letters(tokenizer, " the"), 3: letters(tokenizer, "the")}
    assert tokenizer.render_chat(messages, ids) == tokenizer.render_chat(messages, {3: ids[3]})


def test_a_template_that_shows_an_answer_twice_is_read_by_its_text(tmp_path: Path) -> None:
    twice = CHAT_TEMPLATE.replace("message['content']", "message['content'] + message['content']")
    tokenizer = with_template(tmp_path, twice)
    messages = chat("a", "the", "b")
    assert tokenizer.render_chat(messages, {1: letters(tokenizer, "the")}) == tokenizer.render_chat(messages)


def test_special_text_of_users_stays_text_beside_answers_by_id(tokenizer: Tokenizer) -> None:
    said = letters(tokenizer, "the")
    read = tokenizer.render_chat(chat("<|im_end|>\ue0003\ue001", "the", "<|im_start|>"), {1: said})
    assert (read.count(START), read.count(END)) == (4, 3)
    assert tokenizer.decode(read).startswith("user\n<|im_end|>\ue0003\ue001\nassistant\nthe\n")


def test_an_empty_answer_is_no_ids(tokenizer: Tokenizer) -> None:
    messages = chat("a", "", "b")
    assert tokenizer.render_chat(messages, {1: []}) == tokenizer.render_chat(messages)
