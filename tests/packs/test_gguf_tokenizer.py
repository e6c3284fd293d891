"""The tokenizer built from a GGUF's metadata gives its definition's ids in any script, and the text back."""

from __future__ import annotations

import json

import pytest
from mtplxd.errors import InvalidArgument
from mtplxd.packs.gguf_tokenizer import tokenizer_json
from mtplxd.packs.pack import Pack
from support.reference_bpe import ReferenceBpe
from support.tiny_gguf import MERGES, SPECIAL, TinyGguf
from tokenizers import Tokenizer

TEXTS = [
    "hello world",
    "  hello   world \n\n\tend",
    "he said: don't, can't",
    "12 121234 year 2024, x12y",
    "ünïcödé café Ωμέγα привет",
    "漢字かな交じり文 한국어",
    "مرحبا שלום हिन्दी",
    "🙂👩‍👩‍👧 flags 🇨🇭",
    "٣٤ ⅷ ½ full-width １２",
    "def f(x):\n    return x ** 2  # ok\r\n",
    "<|im_start|>user\nhello<|im_end|>\n<|im_start|> <|im_end",
    "",
]


@pytest.fixture
def tokenizer(converted: Pack) -> Tokenizer:
    return Tokenizer.from_file(str(converted.path / "tokenizer.json"))


@pytest.mark.parametrize("text", TEXTS)
def test_ids_follow_the_definition(text: str, tokenizer: Tokenizer, tiny: TinyGguf) -> None:
    vocab = {token: index for index, token in enumerate(tiny.tokens)}
    pairs = [tuple(merge.split(" ")) for merge in MERGES]
    reference = ReferenceBpe(vocab, pairs, list(SPECIAL))  # type: ignore[arg-type]
    ids = tokenizer.encode(text).ids
    assert ids == reference.encode(text)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_digits_stand_alone_though_a_merge_would_join_them(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("12").tokens == ["1", "2"]


def test_special_tokens_leave_the_text_when_skipped(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>hello<|im_end|>").ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hello"


def test_chat_is_rendered_by_the_sources_template(converted: Pack) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(str(converted.path))
    messages = [{"role": "user", "content": "hello"}]
    text = loaded.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert (loaded.bos_token, loaded.eos_token, loaded.pad_token, loaded.unk_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
        "<|endoftext|>",
    )
    assert (
        loaded.encode("hello")
        == Tokenizer.from_file(str(converted.path / "tokenizer.json")).encode("hello").ids
    )


@pytest.mark.parametrize(("key", "value"), [("model", "llama"), ("pre", "some-new-scheme")])
def test_unknown_scheme_is_refused_by_name(key: str, value: str) -> None:
    meta = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", f"tokenizer.ggml.{key}": value}
    with pytest.raises(InvalidArgument, match=value):
        tokenizer_json(meta)


def test_merges_and_vocabulary_are_the_sources(converted: Pack, tiny: TinyGguf) -> None:
    model = json.loads((converted.path / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    assert model["vocab"] == {token: index for index, token in enumerate(tiny.tokens)}
    assert [" ".join(pair) for pair in model["merges"]] == list(MERGES)
