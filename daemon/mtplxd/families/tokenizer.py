"""Text to token ids and back for one pack, and its chat template. Streaming of text is the engine's.

Text inside messages never becomes a special token: what a template writes and what a user writes are encoded apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from mtplxd.errors import DataLoss, InvalidArgument
from mtplxd.families.spelling import Spelling, read_spelling

_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


class Tokenizer:
    """A pack's tokenizer. Safe to call from several threads; holds no arrays."""

    def __init__(self, folder: Path) -> None:
        self._full: Any = _read(folder)
        self.backend: Any = self._full.backend_tokenizer
        # The mark's own opening character is marked as well: nobody can write a mark.
        self._apart = [*sorted(self._special_texts(), key=len, reverse=True), _OPEN]
        self._apart_pattern = re.compile("|".join(map(re.escape, self._apart)))

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return len(self._full)

    @cached_property
    def longest_token(self) -> int:
        """Bytes that no token's text exceeds."""
        return max(len(text.encode()) for text in self.backend.get_vocab(with_added_tokens=True))

    @property
    def eos_id(self) -> int | None:
        """The tokenizer's own end-of-sequence id."""
        return self._full.eos_token_id  # type: ignore[no-any-return]

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, special tokens recognised, none added."""
        return list(self.backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids` without special tokens."""
        return str(self.backend.decode(list(ids), skip_special_tokens=True))

    def token_bytes(self, token: int) -> bytes:
        """A token's own bytes: part of a character, maybe. Empty for an id that stands for no text at all."""
        added = self._added.get(token)
        if added is not None:
            return added.encode()
        text = self.backend.id_to_token(token)
        return b"" if text is None else self._spelling.bytes_of(text)

    def render_chat(
        self, messages: Sequence[dict[str, str]], spoken: Mapping[int, Sequence[int]] | None = None
    ) -> list[int]:
        """Ids of the conversation put through the pack's template, ready for the assistant's turn.

        `spoken` are ids of some messages, by place: they stand for the text where they say just that, and where the
        template carries the text through as it is. Raises InvalidArgument where the pack has no template or the
        template refuses the messages.
        """
        if not self._full.chat_template:
            raise InvalidArgument("the pack has no chat template", None, "use --raw", field="messages")
        contents = [self._mark(message["content"]) for message in messages]
        text = self._apply(messages, contents)
        said = {
            place: ids for place, ids in (spoken or {}).items() if self._says(ids, messages[place]["content"])
        }
        slotted = self._with_slots(messages, contents, said, text)
        if slotted is None:  # some turn is shown otherwise than it was said, such as without its reasoning
            said = {
                place: ids
                for place, ids in said.items()
                if self._with_slots(messages, contents, [place], text) is not None
            }
            slotted = self._with_slots(messages, contents, said, text)
        return self._encode_marked(text, {}) if slotted is None else self._encode_marked(slotted, said)

    def _apply(self, messages: Sequence[dict[str, str]], contents: Sequence[str]) -> str:
        """The template's text of these messages with other contents."""
        marked = [
            {**message, "content": content} for message, content in zip(messages, contents, strict=True)
        ]
        try:
            return str(self._full.apply_chat_template(marked, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # a template is foreign code and raises what it likes
            raise InvalidArgument(
                "the chat template refuses these messages",
                error,
                "check roles and their order",
                field="messages",
            ) from error

    def _with_slots(
        self, messages: Sequence[dict[str, str]], contents: Sequence[str], places: Iterable[int], text: str
    ) -> str | None:
        """The template's text with a mark for each of the contents at `places`; None unless it is `text` once the
        marks are filled."""
        if not (marks := {place: self._slot(place) for place in places}):
            return text
        slotted = self._apply(messages, [marks.get(place, content) for place, content in enumerate(contents)])
        filled = slotted
        for place, mark in marks.items():
            if slotted.count(mark) != 1:
                return None
            filled = filled.replace(mark, contents[place])
        return slotted if filled == text else None

    def _slot(self, place: int) -> str:
        return f"{_OPEN}{len(self._apart) + place}{_CLOSE}"

    def _says(self, ids: Sequence[int], text: str) -> bool:
        """Whether ids are ordinary ones of just this text."""
        known = all(id < self.vocab_size and id not in self._special_ids for id in ids)
        return known and self.decode(ids) == text

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self.backend.get_added_tokens_decoder().items()
        return frozenset(id for id, token in added if token.special)

    @cached_property
    def _added(self) -> dict[int, str]:
        return {id: token.content for id, token in self.backend.get_added_tokens_decoder().items()}

    @cached_property
    def _spelling(self) -> Spelling:
        return read_spelling(self.backend.decoder)

    def _special_texts(self) -> set[str]:
        added = self.backend.get_added_tokens_decoder().values()
        return {token.content for token in added if token.special}

    def _mark(self, text: str) -> str:
        """Replaces special-token text a user wrote by a mark that the template carries through."""
        return self._apart_pattern.sub(lambda m: f"{_OPEN}{self._apart.index(m.group())}{_CLOSE}", text)

    def _encode_marked(self, text: str, said: Mapping[int, Sequence[int]]) -> list[int]:
        pieces = _MARK.split(text)
        ids: list[int] = []
        for place, piece in enumerate(pieces):
            if place % 2:
                mark, count = int(piece), len(self._apart)
                ids += said[mark - count] if mark >= count else self._encode_plain(self._apart[mark])
            elif piece:
                ids += self.encode(piece)
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        """Ids of special-token text as ordinary text: split after its first character, it no longer matches."""
        return self.encode(text[:1]) + self.encode(text[1:])


def _read(folder: Path) -> Any:
    """The library's tokenizer of a folder. Raises DataLoss.

    The library judges the model's config first, more strictly than the model does: a whole number where it wants a
    fraction is enough. That says nothing of the tokenizer, which is then read by its own files alone.
    """
    from transformers import AutoTokenizer, PreTrainedConfig

    read = partial(AutoTokenizer.from_pretrained, str(folder), local_files_only=True, trust_remote_code=False)
    try:
        try:
            return read()
        except Exception:  # whatever the library makes of a config
            return read(config=PreTrainedConfig())
    except Exception as error:  # damaged files make the library raise what it likes, Exception itself too
        raise DataLoss("cannot read the tokenizer", folder, "pull or build the pack again") from error
