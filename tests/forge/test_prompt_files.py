"""A user's prompts: a line each or a table each, some set apart that are never drawn, anything else refused by line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import InvalidArgument
from mtplxd.forge.prompt_file import LEAST_PROMPTS, ask_from, digest_of, read_prompts, split_prompts

TEXTS = [f"What is the number {place}?" for place in range(40)]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_lines_and_tables_say_the_same(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.txt", [*TEXTS, "", TEXTS[0]])
    tables = [json.dumps({"prompt": text}) for text in TEXTS[:20]]
    talks = [
        json.dumps({"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": text}]})
        for text in TEXTS[20:]
    ]
    assert read_prompts(plain) == read_prompts(write(tmp_path / "b.jsonl", tables + talks)) == TEXTS


def test_a_text_of_several_lines_fits_in_a_table(tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": f"def f{place}():\n\treturn "}) for place in range(LEAST_PROMPTS)]
    assert read_prompts(write(tmp_path / "a.jsonl", lines))[0] == "def f0():\n\treturn "


@pytest.mark.parametrize(
    "line", ["{", "3", '"text"', "{}", '{"prompt": 3}', '{"messages": []}', '{"messages": [1]}']
)
def test_a_line_without_a_prompt_is_named(line: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [json.dumps({"prompt": text}) for text in TEXTS] + [line])
    with pytest.raises(InvalidArgument, match="line 41") as refused:
        read_prompts(path)
    assert refused.value.field == "prompts"


def test_too_few_no_file_and_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="too few"):
        read_prompts(write(tmp_path / "few.txt", TEXTS[: LEAST_PROMPTS - 1] * 3))
    with pytest.raises(InvalidArgument, match="cannot read"):
        read_prompts(tmp_path / "none.txt")
    (tmp_path / "noise.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgument, match="cannot read"):
        read_prompts(tmp_path / "noise.txt")


def test_held_out_prompts_are_never_drawn_and_do_not_depend_on_the_order() -> None:
    trained, held_out = split_prompts(TEXTS)
    assert sorted(trained + held_out) == sorted(TEXTS)
    assert len(held_out) == 5
    assert set(split_prompts(TEXTS[::-1])[1]) == set(held_out)
    asker = ask_from(TEXTS)
    rng = np.random.default_rng(1)
    assert {asker.draw(rng) for _ in range(2000)} == set(trained)
    assert list(asker.held_out) == held_out


def test_other_prompts_are_another_run() -> None:
    assert digest_of(TEXTS) != digest_of(TEXTS[1:])
    assert digest_of(TEXTS) == digest_of(list(TEXTS))
