"""A token's own bytes, for every way a vocabulary spells them; joined they are the text."""

from __future__ import annotations

import pytest
from mtplxd.families.load import LoadedModel
from mtplxd.families.spelling import Spelling, read_spelling
from mtplxd.families.tokenizer import Tokenizer
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

TEXT = "the Rhine, 日本 🦊 naïve\n\tend"


@pytest.fixture(scope="module")
def tokenizer(tiny_model: LoadedModel) -> Tokenizer:
    return tiny_model.tokenizer


def test_the_bytes_of_a_texts_tokens_joined_are_the_text(tokenizer: Tokenizer) -> None:
    pieces = [tokenizer.token_bytes(token) for token in tokenizer.encode(TEXT)]
    assert b"".join(pieces) == TEXT.encode()
    assert max(map(len, pieces)) > 1


def test_a_part_of_a_character_is_its_byte(tokenizer: Tokenizer) -> None:
    pieces = [tokenizer.token_bytes(token) for token in tokenizer.encode("🦊")]
    assert pieces == [bytes([byte]) for byte in "🦊".encode()]


def test_a_special_token_is_its_name_and_an_id_without_a_token_is_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(1) == b"<|im_start|>"
    assert tokenizer.token_bytes(tokenizer.vocab_size + 5) == b""


def test_every_id_has_bytes_of_its_own(tokenizer: Tokenizer) -> None:
    found = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
    assert len(set(found)) == tokenizer.vocab_size
    assert {bytes([byte]) for byte in range(256)} <= set(found)


def test_a_vocabulary_that_falls_back_to_bytes_and_writes_spaces_as_bars() -> None:
    """Llama 2's and Gemma's decoder: what a library makes of a whole text is what the tokens' bytes join to."""
    vocab = {"<unk>": 0, "▁the": 1, "▁naïve": 2, **{f"<0x{byte:02X}>": 3 + byte for byte in range(256)}}
    backend = Backend(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    spelling = read_spelling(backend.decoder)
    ids = [1, 2, *(3 + byte for byte in "🦊".encode())]
    pieces = [spelling.bytes_of(backend.id_to_token(token)) for token in ids]
    assert pieces[:3] == [b" the", " naïve".encode(), b"\xf0"]
    assert b"".join(pieces).decode() == " " + backend.decode(ids)


def test_a_metaspace_is_a_space_and_no_decoder_changes_nothing() -> None:
    assert read_spelling(decoders.Metaspace()).bytes_of("▁a") == b" a"
    assert read_spelling(None) == Spelling()
    assert Spelling().bytes_of("<0x41>▁") == "<0x41>▁".encode()


def test_byte_level_text_inside_another_decoder_is_found() -> None:
    assert read_spelling(decoders.Sequence([decoders.ByteLevel()])).bytes_of("Ġa") == b" a"
