"""Draws varied user prompts from a seed: many subjects times many tasks, so that a head sees breadth.

Owns the mixture (chat, code, prose, lists, mail, maths, rewriting); `templates` owns the sentences, `topics`
the subjects. Pure: the same generator state gives the same prompts on every platform. It never reads a model or a file.
"""

from __future__ import annotations

import numpy as np

from mtplxd.forge import templates, topics

Rng = np.random.Generator

KINDS: tuple[tuple[tuple[str, ...], float], ...] = (
    (templates.ASK, 0.19),
    (templates.LIST, 0.13),
    (templates.PROSE, 0.13),
    (templates.PAIR, 0.05),
    (templates.STORY, 0.11),
    (templates.CODE, 0.15),
    (templates.TECH, 0.05),
    (templates.REWRITE, 0.03),
    (templates.MAIL, 0.05),
    (templates.MATHS, 0.03),
    (templates.TALK, 0.08),
)
"""Templates of a kind and their share."""


def draw_prompt(rng: Rng) -> str:
    """One user prompt."""
    shares = np.array([share for _, share in KINDS])
    asked = KINDS[int(rng.choice(len(KINDS), p=shares / shares.sum()))][0]
    return fill(asked[int(rng.integers(len(asked)))], rng)


def fill(template: str, rng: Rng) -> str:
    """Puts a random subject into each placeholder of `template` that occurs."""
    words = {name: _pick(rng, choices) for name, choices in _WORDS.items()}
    numbers = {name: str(rng.integers(low, high)) for name, (low, high) in _NUMBERS.items()}
    return template.format(**words, **numbers)


def _pick(rng: Rng, choices: tuple[str, ...]) -> str:
    return choices[int(rng.integers(len(choices)))]


_WORDS = {
    "s": topics.SUBJECTS,
    "t": topics.SUBJECTS,
    "h": topics.HEROES,
    "g": topics.HEROES,
    "l": topics.LANGUAGES,
    "c": topics.CODE_TASKS,
    "q": topics.SQL_TASKS,
    "x": topics.SENTENCES,
    "e": topics.ERRANDS,
    "n": topics.NAMES,
    "m": topics.NAMES,
    "o": topics.GOODS,
}
_NUMBERS = {"a": (12, 90), "b": (2, 12), "d": (90, 900)}
