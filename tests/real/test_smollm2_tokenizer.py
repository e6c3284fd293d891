"""The real model's tokenizer gives the ids of its definition in many scripts, the same as on the day it was converted.

Needs the pulled pack; `make test` pulls it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mtplxd.packs.catalogue import SOURCES
from mtplxd.packs.fingerprint import body_fingerprint
from mtplxd.packs.pack import Pack
from support.reference_bpe import ReferenceBpe
from tokenizers import Tokenizer

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "smollm2_ids.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tables(real_pack: Pack) -> dict[str, object]:
    return json.loads((real_pack.path / "tokenizer.json").read_text(encoding="utf-8"))


def test_weights_are_the_catalogues_on_this_machine_too(real_pack: Pack) -> None:
    assert body_fingerprint(real_pack) == SOURCES["smollm2-135m"].body_fingerprint


@pytest.mark.parametrize("text", sorted(GOLDEN))
def test_ids_are_golden_and_follow_the_definition(real_pack: Pack, tables: dict, text: str) -> None:
    model = tables["model"]
    special = [token["content"] for token in tables["added_tokens"]]
    reference = ReferenceBpe(model["vocab"], [tuple(pair) for pair in model["merges"]], special)
    tokenizer = Tokenizer.from_file(str(real_pack.path / "tokenizer.json"))
    ids = tokenizer.encode(text).ids
    assert ids == GOLDEN[text] == reference.encode(text)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_chat_puts_the_publishers_system_prompt_first(real_pack: Pack) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(str(real_pack.path))
    rendered = loaded.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert rendered == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
