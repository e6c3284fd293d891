"""What a text must match: a JSON schema, a regex or a Lark grammar, compiled once a request, followed row by row.

The one place that uses llguidance. It knows tokens only; masking logits with what it allows is `masking`'s.
"""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np

from mtplxd.engine.json_schema import NESTING_LIMIT, check_schema, count_nesting, read_schema
from mtplxd.errors import InvalidArgument

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from mtplxd.families.tokenizer import Tokenizer

Kind = Literal["json_schema", "regex", "grammar"]

_NAMES = {"json_schema": "JSON schema", "regex": "regex", "grammar": "grammar"}
_REASON_LIMIT = 240
TEXT_LIMIT = 1 << 20
"""Most characters of a schema, regex or grammar."""
_END = "\ue000end\ue001"
_BRACKET_LEVELS = 0.25
"""A bracket's share of the stack, in levels of a schema or chained rules."""
# Without it only one tokenisation of what must come next is allowed, at places that depend on what was asked before.
_EVERY_TOKENISATION = '\n%llguidance {"no_forcing": true}\n'
# A literal, or an attribute of a rule that asks for what only an interpreter of whole programs could do. A literal that
# nothing closes goes to the end of its line, and nothing is looked at twice: malformed texts cost no more than others.
_LARK_PIECES = re.compile(
    r'"(?:\\.|[^"\\\n])*"?|/(?:\\.|[^/\\\n])+/?|(?P<comment>//[^\n]*|#[^\n]*)'
    r"|\b(?P<attribute>temperature|stop_capture|stop)\s*=|(?P<options>%llguidance)|(?P<json>%json\s*)"
    r"|(?P<rule>:)|(?P<bracket>[(\[])"
)


class Grammar:
    """Compiled for one tokenizer. `start` is cheap; the rest of the work is done."""

    def __init__(self, root: LLMatcher, size: int, known: int, eos_ids: frozenset[int]) -> None:
        self._root = root
        self.size, self.known = size, known
        self.eos_ids = np.array(sorted(id for id in eos_ids if id < size), np.int64)

    def start(self) -> Matcher:
        """A state at the beginning of the text."""
        return Matcher(self)

    def copy_root(self) -> LLMatcher:
        """A state of the library's own, at the beginning."""
        return self._root.deep_copy()


class Matcher:
    """One row's place in the text. A stop token is never part of the text, whatever the grammar names."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._state = grammar.copy_root()
        self._consumed: list[int] = []

    def mask(self) -> np.ndarray:
        """bool [V]: ids allowed next. Stop tokens are where the text may end; none at all where it leads nowhere."""
        grammar = self._grammar
        mask = np.zeros(grammar.size, np.bool_)
        bits = np.frombuffer(self._state.compute_bitmask(), np.uint8)
        known = min(grammar.known, grammar.size)
        mask[:known] = np.unpackbits(bits, count=known, bitorder="little")
        mask[grammar.eos_ids] = self._state.is_accepting()
        return mask

    def advance(self, token: int) -> bool:
        """Consumes a token; False, and nothing changes, where it is not allowed or is a stop token."""
        if token >= self._grammar.known or token in self._grammar.eos_ids:
            return False
        if self._state.try_consume_tokens([token]) == 1:
            self._consumed.append(token)
            return True
        if self._state.is_error():
            self._rebuild()
        return False

    def roll_back(self, count: int) -> None:
        """Takes the last `count` consumed tokens back."""
        if not count:
            return
        del self._consumed[len(self._consumed) - count :]
        # Where tokens are counted, or a limit was reached, the library's own way back is barred.
        if self._state.is_error() or not self._state.rollback(count):
            self._rebuild()

    @property
    def complete(self) -> bool:
        """Whether the text can only end here."""
        return bool(self._state.is_stopped() and self._state.is_accepting())

    def _rebuild(self) -> None:
        self._state = self._grammar.copy_root()
        self._state.try_consume_tokens(self._consumed)


def compile_grammar(
    kind: Kind, text: str, tokenizer: Tokenizer, vocab_size: int, eos_ids: frozenset[int]
) -> Grammar:
    """Compiles what a text must match; takes milliseconds, and a second for a tokenizer's first grammar.

    Raises InvalidArgument naming `kind` for one that is invalid, cannot be followed exactly, or that no text matches.
    """
    from llguidance import LLMatcher

    if len(text) > TEXT_LIMIT:
        fix = f"give at most {TEXT_LIMIT} characters"
        raise InvalidArgument(f"the {_NAMES[kind]} is too long", f"{len(text)} characters", fix, field=kind)
    try:
        lark = _as_lark(kind, text)
    except ValueError as error:
        raise _refusal(kind, str(error)) from error
    library = _library_tokenizer(tokenizer)
    state = LLMatcher(library, LLMatcher.grammar_from_lark(lark + _EVERY_TOKENISATION), log_level=0)
    problems = [state.get_error()] if state.is_error() else state.get_grammar_warnings()
    if problems:
        raise _refusal(kind, _in_one_line(kind, problems[0]))
    grammar = Grammar(state, vocab_size, library.vocab_size - 1, eos_ids)
    _check_beginning(kind, grammar)
    return grammar


def _as_lark(kind: Kind, text: str) -> str:
    if kind == "json_schema":
        read_schema(text)
        return f"start: %json {text}"
    if kind == "regex":
        from llguidance import LLMatcher

        [made] = json.loads(LLMatcher.grammar_from_regex(text))["grammars"]
        return str(made["lark_grammar"])
    _check_lark(text)
    return text


def _check_lark(text: str) -> None:
    """Raises ValueError for what the library would leave aside without a word, or fail on with the whole process."""
    place, nesting = 0, 0.0
    while piece := _LARK_PIECES.search(text, place):
        place = piece.end()
        if attribute := piece["attribute"]:
            raise ValueError(f'rule attribute "{attribute}" is not supported')
        if piece["options"]:
            raise ValueError("%llguidance options are not supported")
        if piece["json"]:
            try:
                schema, place = json.JSONDecoder().raw_decode(text, place)
            except (ValueError, RecursionError):
                return  # the compiler says where it is malformed
            check_schema(schema)
            nesting += count_nesting(schema)
        nesting += 1 if piece["rule"] else _BRACKET_LEVELS if piece["bracket"] else 0
    if nesting > NESTING_LIMIT:
        raise ValueError("too many rules and brackets, which may nest too deeply")


def _check_beginning(kind: Kind, grammar: Grammar) -> None:
    matcher = grammar.start()
    mask = matcher.mask()
    may_end = bool(grammar.eos_ids.size and mask[grammar.eos_ids[0]])
    mask[grammar.eos_ids] = False
    if not mask.any():
        raise _refusal(kind, "only the empty text matches" if may_end else "unsatisfiable: no text matches")


def _in_one_line(kind: Kind, message: str) -> str:
    """The library's reason without the picture of the place; lines are told for grammars, which have them."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith("error: ")), lines[0] if lines else "unknown")
    place = re.match(r"(?:at )?(\d+)\(\d+\): ", lines[0]) if lines else None
    told = re.sub(r"^(?:at )?\d+\(\d+\): ", "", told.removeprefix("error: "))
    told = re.sub(
        r"^failed to compile JSON schema: |^invalid regex .*? \(in regex\): |\. Enable '.*", "", told
    )
    told = told.partition("; following special tokens")[0]
    return f"line {place[1]}: {told}" if kind == "grammar" and place else told


def _refusal(kind: Kind, reason: str) -> InvalidArgument:
    reason = " ".join(reason.split())
    shown = reason if len(reason) <= _REASON_LIMIT else f"{reason[:_REASON_LIMIT]}…"
    return InvalidArgument(
        f"the {_NAMES[kind]} cannot be followed", shown, "change it or leave it out", field=kind
    )


_tokenizers: WeakKeyDictionary[Tokenizer, LLTokenizer] = WeakKeyDictionary()
_building = threading.Lock()


def _library_tokenizer(tokenizer: Tokenizer) -> LLTokenizer:
    with _building:
        if tokenizer not in _tokenizers:
            _tokenizers[tokenizer] = _build_tokenizer(tokenizer)
        return _tokenizers[tokenizer]


def _build_tokenizer(tokenizer: Tokenizer) -> LLTokenizer:
    """The library wants one token to mean the end; it gets an id beyond the vocabulary, so that all others are text."""
    from llguidance import LLTokenizer

    described: dict[str, Any] = json.loads(tokenizer.backend.to_str())
    described["truncation"] = described["padding"] = None
    end = 1 + max(tokenizer.backend.get_vocab(with_added_tokens=True).values())
    described["added_tokens"].append(
        {"id": end, "content": _END, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    )
    return LLTokenizer(json.dumps(described), eos_token=end)
