"""The real model's tokenizer gives the ids of its definition in many scripts, the same as on the day it was converted.

Needs the pulled pack; `make test` pulls it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from mtplxd.errors import NotFound
from mtplxd.packs.catalogue import SOURCES
from mtplxd.packs.fingerprint import body_fingerprint
from mtplxd.packs.pack import Pack
from mtplxd.packs.resolver import resolve
from mtplxd.paths import Home, resolve_home
from support.reference_bpe import ReferenceBpe
from tokenizers import Tokenizer

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "smollm2_ids.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pack() -> Pack:
    pulled = Home(Path(sys.prefix, "home"))  # where `make test` puts it
    try:
        return resolve("smollm2-135m", pulled if pulled.packs.is_dir() else resolve_home())
    except NotFound:
        pytest.skip("needs the real weights: run `mtplx pull smollm2-135m`")


@pytest.fixture(scope="module")
def tables(pack: Pack) -> dict[str, object]:
    return json.loads((pack.path / "tokenizer.json").read_text(encoding="utf-8"))


def test_weights_are_the_catalogues_on_this_machine_too(pack: Pack) -> None:
    assert body_fingerprint(pack) == SOURCES["smollm2-135m"].body_fingerprint


@pytest.mark.parametrize("text", sorted(GOLDEN))
def test_ids_are_golden_and_follow_the_definition(pack: Pack, tables: dict, text: str) -> None:
    model = tables["model"]
    special = [token["content"] for token in tables["added_tokens"]]
    reference = ReferenceBpe(model["vocab"], [tuple(pair) for pair in model["merges"]], special)
    tokenizer = Tokenizer.from_file(str(pack.path / "tokenizer.json"))
    ids = tokenizer.encode(text).ids
    assert ids == GOLDEN[text] == reference.encode(text)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_chat_puts_the_publishers_system_prompt_first(pack: Pack) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(str(pack.path))
    rendered = loaded.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert rendered == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
