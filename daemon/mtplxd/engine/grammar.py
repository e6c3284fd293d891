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

from mtplxd.engine.json_schema import NESTING_LIMIT, TOGETHER_LIMIT, check_schema, count_nesting, read_schema
from mtplxd.errors import InvalidArgument

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    from mtplxd.families.tokenizer import Tokenizer

Kind = Literal["json_schema", "regex", "grammar"]

_NAMES = {"json_schema": "JSON schema", "regex": "regex", "grammar": "grammar"}
_REASON_LIMIT = 240
TEXT_LIMIT = 1 << 17
"""Most characters of a schema, regex or grammar."""
_END = "\ue000end\ue001"
_BRACKET_LEVELS = 0.25
"""A bracket's share of the stack, in levels of a schema or chained rules."""
WHITE_SPACE = 64
"""Most characters of white space between two tokens of JSON: a model that likes blanks comes to its end."""
_SPACES = f'"x-guidance": {{"whitespace_pattern": "[ \\\\n\\\\r\\\\t]{{1,{WHITE_SPACE}}}"}}'
MOST_ITEMS, MOST_STATES = 10_000, 50_000
"""Bounds of what the library builds for a mask, and of what it keeps (a kilobyte or two each). With them no mask was
seen to take longer than 0.3 s nor a compilation than a few seconds, whatever was asked; beyond them a structure is
refused, and a text that has begun ends."""
# Without it only one tokenisation of what must come next is allowed, at places that depend on what was asked before.
_EVERY_TOKENISATION = '\n%llguidance {"no_forcing": true}\n'
# A literal, or an attribute of a rule that asks for what only an interpreter of whole programs could do. A literal that
# nothing closes goes to the end of its line, and nothing is looked at twice: malformed texts cost no more than others.
_LARK_PIECES = re.compile(
    r'"(?:\\.|[^"\\\n])*"?|/(?:\\.|[^/\\\n])+/?|(?P<comment>//[^\n]*|#[^\n]*)'
    r"|\b(?P<attribute>temperature|stop_capture|stop)\s*=|(?P<options>%llguidance)|(?P<json>%json\s*)"
    r"|(?P<rule>:)|(?P<bracket>[(\[])|(?P<both>&)"
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

    @property
    def failure(self) -> str:
        """Which bound of the library's the text has reached, empty for none."""
        error = str(self._state.get_error()).partition("\n")[0]
        return error if " " in error else ""  # a single word says that the text has come to its end

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
    made = LLMatcher.grammar_from_lark(lark + _EVERY_TOKENISATION)
    state = LLMatcher(library, made, log_level=0, limits=_limits())
    problems = [state.get_error()] if state.is_error() else state.get_grammar_warnings()
    if problems:
        raise _refusal(kind, _in_one_line(kind, problems[0]))
    grammar = Grammar(state, vocab_size, library.vocab_size - 1, eos_ids)
    _check_beginning(kind, grammar)
    return grammar


def _limits() -> LLParserLimits:
    """Large regexes are not run over all tokens beforehand: some took a minute."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        precompute_large_lexemes=False, step_max_items=MOST_ITEMS, max_lexer_states=MOST_STATES
    )


def _as_lark(kind: Kind, text: str) -> str:
    if kind == "json_schema":
        return f"start: %json {_with_bounded_space(text, read_schema(text))}"
    if kind == "regex":
        from llguidance import LLMatcher

        [made] = json.loads(LLMatcher.grammar_from_regex(text))["grammars"]
        return str(made["lark_grammar"])
    return _checked_lark(text)


def _with_bounded_space(text: str, schema: Any) -> str:
    """The text of a parsed schema that also bounds white space. Numbers stay as they were written."""
    if schema is True:
        return f"{{{_SPACES}}}"
    if not isinstance(schema, dict):
        return text
    opening = text.index("{") + 1
    return f"{text[:opening]}{_SPACES}{',' if schema else ''}{text[opening:]}"


def _checked_lark(text: str) -> str:
    """The text with white space bounded in the schemas it holds.

    Raises ValueError for what the library would leave aside without a word, or fail on with the whole process.
    """
    place, nesting, together, made, kept = 0, 0.0, 1, "", 0
    while piece := _LARK_PIECES.search(text, place):
        place = piece.end()
        if attribute := piece["attribute"]:
            raise ValueError(f'rule attribute "{attribute}" is not supported')
        if piece["options"]:
            raise ValueError("%llguidance options are not supported")
        if piece["json"]:
            begin = place
            try:
                schema, place = json.JSONDecoder().raw_decode(text, begin)
            except (ValueError, RecursionError):
                return text  # the compiler says where it is malformed
            check_schema(schema)
            made += text[kept:begin] + _with_bounded_space(text[begin:place], schema)
            kept = place
            nesting += count_nesting(schema)
        together += piece["both"] is not None
        nesting += 1 if piece["rule"] else _BRACKET_LEVELS if piece["bracket"] else 0
    if together > TOGETHER_LIMIT:
        raise ValueError(f"more than {TOGETHER_LIMIT} patterns are joined with &")
    if nesting > NESTING_LIMIT:
        raise ValueError("too many rules and brackets, which may nest too deeply")
    return made + text[kept:]


def _check_beginning(kind: Kind, grammar: Grammar) -> None:
    matcher = grammar.start()
    mask = matcher.mask()
    if reason := matcher.failure:
        raise _refusal(kind, _in_one_line(kind, reason))
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
