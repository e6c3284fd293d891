"""Which token ids stand around a question: of a template, of one that only does for a single question, of none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition, InvalidArgument
from mtplxd.forge.rollout import Plan, Row
from mtplxd.forge.turns import choose_turns, find_turns


class Words:
    """A tokenizer of characters, whose template is `<…>` around questions and `{…}` around answers."""

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def render_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        shown = [f"{'{' if m['role'] == 'user' else ''}{m['content']}" for m in messages]
        return self.encode("!".join(shown) + "!")


class Forgetful(Words):
    """Shows the last message only."""

    def render_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self.encode(f"<{messages[-1]['content']}>")


class Bare(Words):
    def render_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        raise InvalidArgument("the pack has no chat template", len(messages))


def text(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def test_a_plain_template_is_split_around_its_texts() -> None:
    turns = choose_turns(Words())
    assert (text(turns.first), text(turns.close), text(turns.again)) == ("{", "!", "!{")
    assert turns == find_turns(Words()) or turns.first == find_turns(Words()).first
    assert turns.end == ord("!")


def test_a_template_that_hides_a_text_does_for_a_single_question() -> None:
    with pytest.raises(FailedPrecondition):
        find_turns(Forgetful())
    turns = choose_turns(Forgetful())
    assert text(turns.encode("What?")) == "<What?>"
    assert (turns.first, turns.close, turns.again, turns.end) == ([], [], [], -1)


@pytest.mark.parametrize(("tokenizer", "raw"), [(Bare(), False), (Words(), True)])
def test_without_a_template_a_text_is_gone_on_with_as_it_is(tokenizer: Words, raw: bool) -> None:
    turns = choose_turns(tokenizer, raw=raw)
    assert text(turns.encode("def f(")) == "def f("
    assert turns.end == -1


def test_a_row_without_turns_runs_on_to_its_end() -> None:
    turns = choose_turns(Bare())
    plan = Plan(length=40, answer=(2, 3), ask_first=0.0, ask_again=0.0, run_free=1.0)
    row = Row(np.random.default_rng(0), turns, plan, lambda _: "ab")
    told = [row.advance(7) for _ in range(10)]
    assert [token for token, _ in told] == [ord("a"), ord("b"), *[7] * 8]
    assert len({origin for _, origin in told[2:]}) == 1
