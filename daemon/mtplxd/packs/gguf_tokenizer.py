"""Builds a Hugging Face tokenizer from the metadata of a GGUF file, as plain JSON tables.

It writes the tables itself, so the bytes do not depend on any tokenizer library's version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtplxd.errors import InvalidArgument

SPECIAL_TYPE = 3
"""llama.cpp's token type of control tokens."""

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": _BYTE_LEVEL,
    "smollm": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    },
}
"""How text is split before merging, by llama.cpp's name of the scheme."""


def tokenizer_json(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `tokenizer.json`. Raises InvalidArgument for a scheme that is not known here."""
    if meta.get("tokenizer.ggml.model") != "gpt2":
        raise InvalidArgument(
            "tokenizer kind of this GGUF",
            meta.get("tokenizer.ggml.model"),
            "only byte-level BPE (gpt2) converts",
        )
    scheme = str(meta.get("tokenizer.ggml.pre", "gpt-2"))
    if scheme not in PRE_TOKENIZERS:
        raise InvalidArgument("pre-tokenizer of this GGUF", scheme, f"known: {', '.join(PRE_TOKENIZERS)}")
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(index, tokens[index]) for index in _special_ids(meta)],
        "normalizer": None,
        "pre_tokenizer": PRE_TOKENIZERS[scheme],
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in meta["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_config(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `tokenizer_config.json`, chat template included where the file has one."""
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": bool(meta.get("tokenizer.ggml.add_space_prefix", False)),
        "model_max_length": int(meta[f"{meta['general.architecture']}.context_length"]),
        "added_tokens_decoder": {
            str(index): {key: value for key, value in _added(index, tokens[index]).items() if key != "id"}
            for index in _special_ids(meta)
        },
    }
    for role, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        index = meta.get(f"tokenizer.ggml.{key}_token_id")
        if index is not None:
            config[f"{role}_token"] = tokens[index]
    if template := meta.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return config


def _special_ids(meta: Mapping[str, Any]) -> list[int]:
    kinds: list[int] = meta["tokenizer.ggml.token_type"]
    return [index for index, kind in enumerate(kinds) if kind == SPECIAL_TYPE]


def _added(index: int, token: str) -> dict[str, Any]:
    return {
        "id": index,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
