"""Reads the prompts a user trains on from a file, and sets some apart that are never trained on.

A line is a prompt, or in a `.jsonl` file a table with `prompt` or with `messages`, of which the first user's counts.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtplxd.errors import InvalidArgument

if TYPE_CHECKING:  # a daemon reads the file before it begins a build, and imports no MLX for that
    from mtplxd.forge.generating import Asker
    from mtplxd.forge.rollout import Rng

LEAST_PROMPTS = 16
HELD_OUT_SHARE = 8
"""One in so many is held out."""
MOST_HELD_OUT = 64


def read_prompts(path: Path) -> list[str]:
    """The prompts of a file, without repeats, in its order. Raises InvalidArgument for too few or none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument("cannot read the prompts", path, "check the file", field="prompts") from error
    texts = [_text_of(line, path, place) for place, line in enumerate(lines, 1) if line.strip()]
    found = list(dict.fromkeys(text for text in texts if text.strip()))
    if len(found) < LEAST_PROMPTS:
        fix = f"give at least {LEAST_PROMPTS}, a line each"
        raise InvalidArgument("too few different prompts", f"{len(found)} in {path}", fix, field="prompts")
    return found


def split_prompts(prompts: list[str]) -> tuple[list[str], list[str]]:
    """Those to train on and those held out, by their text alone."""
    ordered = sorted(prompts, key=lambda text: hashlib.sha256(text.encode()).digest())
    apart = set(ordered[: min(MOST_HELD_OUT, max(2, len(prompts) // HELD_OUT_SHARE))])
    return [p for p in prompts if p not in apart], [p for p in prompts if p in apart]


def ask_from(prompts: list[str]) -> Asker:
    """Draws from the prompts that are not held out."""
    from mtplxd.forge.generating import Asker

    trained, held_out = split_prompts(prompts)

    def draw(rng: Rng) -> str:
        return trained[int(rng.integers(len(trained)))]

    return Asker(draw, held_out)


def digest_of(prompts: list[str]) -> str:
    """What the prompts are, for a run's settings."""
    return hashlib.sha256(json.dumps(prompts).encode()).hexdigest()


def _text_of(line: str, path: Path, place: int) -> str:
    if path.suffix != ".jsonl":
        return line
    try:
        entry: Any = json.loads(line)
        text = entry["prompt"] if "prompt" in entry else _first_of(entry["messages"])
    except (ValueError, LookupError, TypeError, StopIteration):
        text = None
    if not isinstance(text, str):
        fix = 'write {"prompt": "…"}'
        raise InvalidArgument("a line holds no prompt", f"line {place} of {path}", fix, field="prompts")
    return text


def _first_of(messages: list[dict[str, Any]]) -> Any:
    return next(message["content"] for message in messages if message["role"] == "user")
