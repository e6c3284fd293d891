"""A loaded head that is fed in another way drafts what the equations of that way say, and afterwards its own again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.families.heads.feeding import TAPS, choose_tap, fed, ways_to_feed
from mtplxd.families.heads.norms import is_norm
from mtplxd.families.heads.row import HeadSettings
from mtplxd.platform.mlx import mx
from support.families import write_checkpoint
from support.head_references import ALLOWED, draw, reference_of
from support.head_rig import Opened, draft_logits, open_head

CUTS = [14, 1, 8]
DENSE = ("glm4_moe_lite", "mimo", "qwen3_5")


def reference(family: str, opened: Opened, way: HeadSettings) -> Any:
    """The equations with this way's switches; norms as they are stored, or one more."""
    own = opened.head.settings.norm_convention
    step = (way.norm_convention == "zero_centred") - (own == "zero_centred")
    stored = opened.tensors
    opened.tensors = {name: w + step if is_norm(name, mx.array(w)) else w for name, w in stored.items()}
    try:
        declared = reference_of(family, opened)
    finally:
        opened.tensors = stored
    return replace(
        declared, hidden_first=way.concat == "hidden_first", feeds_back_normed=way.recursion == "post"
    )


@pytest.mark.parametrize("family", DENSE)
def test_every_way_is_what_its_equations_say(family: str, tmp_path: Path) -> None:
    opened = open_head(write_checkpoint(tmp_path, family))
    tokens, hidden, drafts = draw(opened, drafts=2)
    seen = []
    for way in ways_to_feed(opened.head):
        with fed(opened.head, way) as head:
            found = draft_logits(head, tokens, hidden, drafts, CUTS)
        wanted = reference(family, opened, way).draft(tokens, hidden, drafts)
        assert np.abs(found - wanted).max() < ALLOWED, way
        seen.append(found)
    differing = {found.tobytes() for found in seen}
    assert len(differing) == 8  # the tap changes what it is given, not what it makes of it


@pytest.mark.parametrize("family", ["glm4_moe_lite", "step3p5"])
def test_afterwards_it_is_fed_as_before_even_when_somebody_fails(family: str, tmp_path: Path) -> None:
    opened = open_head(write_checkpoint(tmp_path, family))
    tokens, hidden, drafts = draw(opened, drafts=1)
    before, own = draft_logits(opened.head, tokens, hidden, drafts, CUTS), opened.head.settings
    for way in ways_to_feed(opened.head):
        with pytest.raises(ZeroDivisionError):
            _fail(opened.head, way)
        assert opened.head.settings == own
        assert np.array_equal(draft_logits(opened.head, tokens, hidden, drafts, CUTS), before)


def _fail(head: Any, way: HeadSettings) -> None:
    with fed(head, way):
        assert head.settings == way
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("family", "ways"),
    [("qwen3_5", 16), ("mimo", 16), ("step3p5", 16), ("mimo_v2_flash", 8), ("ernie4_5_moe", 8)],
)
def test_a_switch_that_changes_nothing_is_left_alone(family: str, ways: int, tmp_path: Path) -> None:
    head = open_head(write_checkpoint(tmp_path, family)).head
    found = ways_to_feed(head)
    assert len(found) == len(set(found)) == ways
    assert head.settings in found
    assert len({way.recursion for way in found}) == (2 if ways == 16 else 1)


def test_the_tap_is_taken_from_where_the_way_says() -> None:
    states = tuple(mx.full((1, 2, 3), number) for number in range(len(TAPS)))
    for number, tap in enumerate(TAPS):
        [taken] = choose_tap(states, HeadSettings(tap=str(tap)))
        assert taken.tolist() == states[number].tolist()
