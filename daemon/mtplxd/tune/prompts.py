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


def prompt_seed(seed: int, index: int) -> int:
    """The seed of one prompt; the generator is keyed by it, so neighbours have nothing in common."""
    return (seed + index) % _SEED_SPACE


def _read_texts(path: Path) -> list[str]:
    try:
        suite: Any = json.loads(path.read_text(encoding="utf-8"))
        return [str(prompt["messages"][0]["content"]) for prompt in suite["prompts"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataLoss("damaged bench suite", path.name, "install mtplxd again") from error
