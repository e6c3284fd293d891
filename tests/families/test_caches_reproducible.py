"""Forwards of one shape give a position the same bits at every depth, on every kind of cache, across a block's end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mtplxd.engine.fixed_shape import BLOCK, fix_shape, is_shape_stable, room_in_block
from mtplxd.engine.round import commit, land, launch
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from support.families import write_checkpoint
from support.ragged import counted
from support.steering import open_steered

PROMPT = [(place * 31 + 5) % 290 + 3 for place in range(BLOCK - 12)]
MADE, WIDTH = 24, 4
FAMILIES = ["mimo_v2_flash", "gemma4", "deepseek_v32", "longcat_flash", "qwen3_5", "nemotron_h"]


def logits_of(model: LoadedModel, depth: int) -> tuple[list[int], dict[int, bytes]]:
    """A text, and the bits of the logits before each of its positions."""
    batch = open_steered(model, PROMPT, depth)
    fix_shape(batch, WIDTH)
    [row] = batch.rows
    found: dict[int, bytes] = {}
    while len(row.tokens) < len(PROMPT) + MADE:
        begin = len(row.tokens)
        length = min(depth, room_in_block(begin))
        flight = launch(batch, counted([0], [0]), [length])
        [landing] = land(batch, flight)
        raw = np.array(flight.raw[0])
        found |= {begin + place: raw[place].tobytes() for place in range(len(landing.tokens))}
        commit(batch, flight, [landing], [len(landing.tokens)])
    return row.tokens[: len(PROMPT) + MADE], found


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_the_same_bits_at_every_depth(family: str, tmp_path: Path) -> None:
    model = load_model(read_pack(write_checkpoint(tmp_path / "pack", family, easy=True)))
    assert is_shape_stable(model.target, WIDTH)
    text, plain = logits_of(model, 0)
    for depth in range(1, min(3, model.depth_max) + 1):
        other, found = logits_of(model, depth)
        assert other == text
        assert all(found[place] == plain[place] for place in found.keys() & plain.keys())
