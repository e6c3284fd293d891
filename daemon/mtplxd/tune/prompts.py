"""The bench suites: loads their prompts and derives the seed of each. The texts are data beside this file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtplxd.errors import DataLoss, InvalidArgument

if TYPE_CHECKING:
    from mtplxd.families.tokenizer import Tokenizer

SUITES = Path(__file__).parent / "suites"
DEFAULT_SUITE = "mixed"
DEFAULT_SEED = 0
"""A measurement that names no seed is the same every time."""
LONG_SUITE = "long-code"
"""Prompts of at least 2,048 tokens; other prompts are filled up with its texts."""
MORE = 1.04
"""How much more filler is tried where a part of it is denser than the whole."""
_SEED_SPACE = 1 << 64


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user message of a suite, and the seed its answers have at every depth."""

    index: int
    text: str
    seed: int


@dataclass(frozen=True, slots=True)
class Suite:
    """The prompts that a measurement takes, in order."""

    name: str
    prompts: tuple[Prompt, ...]


def list_suites(folder: Path = SUITES) -> list[str]:
    """The suites there are."""
    return sorted(path.stem for path in folder.glob("*.json"))


def load_suite(name: str = "", count: int = 0, seed: int = DEFAULT_SEED, folder: Path = SUITES) -> Suite:
    """The first `count` prompts of a suite (0 = all), each with its seed.

    Raises InvalidArgument for a suite there is not and for more prompts than it has, DataLoss for a damaged file.
    """
    name = name.strip() or DEFAULT_SUITE
    if name not in (names := list_suites(folder)):
        raise InvalidArgument("unknown suite", name, f"give {', '.join(names)}", field="suite")
    texts = _read_texts(folder / f"{name}.json")
    if count > len(texts):
        fix = f"the suite {name} has {len(texts)}"
        raise InvalidArgument("too many prompts", count, fix, field="prompts")
    chosen = texts[: count or len(texts)]
    return Suite(name, tuple(Prompt(at, text, prompt_seed(seed, at)) for at, text in enumerate(chosen)))


def render_prompts(suite: Suite, tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of each prompt as the first message of a chat."""
    return [tokenizer.render_chat([{"role": "user", "content": prompt.text}]) for prompt in suite.prompts]


def fill_prompts(suite: Suite, tokenizer: Tokenizer, context: int) -> list[list[int]]:
    """As `render_prompts`, each at least `context` tokens long: code to read stands before what is asked, as much as is
    missing. 0 leaves them as they are.
    """
    rendered = render_prompts(suite, tokenizer)
    if not context:
        return rendered
    filler = "\n\n".join(prompt.text for prompt in load_suite(LONG_SUITE).prompts)
    each = len(filler) / len(_render_filled("", filler, tokenizer))
    return [
        tokens
        if len(tokens) >= context
        else _fill(prompt.text, len(tokens), context, filler, each, tokenizer)
        for prompt, tokens in zip(suite.prompts, rendered, strict=True)
    ]


def _fill(text: str, own: int, context: int, filler: str, each: float, tokenizer: Tokenizer) -> list[int]:
    """With as much filler as is missing by its own density (`each` characters a token), and more until it is enough."""
    wanted = (context - own) * each
    filler *= 2 + int(2 * wanted) // len(filler)
    tokens: list[int] = []
    while len(tokens) < context and wanted < len(filler):
        tokens = _render_filled(text, filler[: int(wanted)], tokenizer)
        wanted *= MORE
    return tokens


def _render_filled(text: str, filler: str, tokenizer: Tokenizer) -> list[int]:
    return tokenizer.render_chat([{"role": "user", "content": f"{filler}\n\n{text}"}])


def prompt_seed(seed: int, index: int) -> int:
    """The seed of one prompt; the generator is keyed by it, so neighbours have nothing in common."""
    return (seed + index) % _SEED_SPACE


def _read_texts(path: Path) -> list[str]:
    try:
        suite: Any = json.loads(path.read_text(encoding="utf-8"))
        return [str(prompt["messages"][0]["content"]) for prompt in suite["prompts"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataLoss("damaged bench suite", path.name, "install mtplxd again") from error
