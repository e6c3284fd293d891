"""Prompts: the same seed gives the same ones, and many seeds give many."""

from __future__ import annotations

import string

import numpy as np
from mtplxd.forge.prompts import KINDS, draw_prompt, fill


def draw(seed: int, count: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [draw_prompt(rng) for _ in range(count)]


def test_a_seed_means_one_list_of_prompts() -> None:
    assert draw(3, 50) == draw(3, 50)
    assert draw(3, 50) != draw(4, 50)


def test_a_thousand_draws_hardly_repeat() -> None:
    assert len(set(draw(0, 1000))) > 950


def test_every_place_of_every_template_is_filled() -> None:
    rng = np.random.default_rng(0)
    for templates, share in KINDS:
        assert share > 0
        for template in templates:
            filled = fill(template, rng)
            assert filled.strip()
            assert not any(name for _, name, _, _ in string.Formatter().parse(filled) if name)
