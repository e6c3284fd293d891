"""Published heads agree with their equations, in any partition of the text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.families import write_checkpoint
from support.head_references import ALLOWED, FAMILIES, draw, reference_of
from support.head_rig import draft_logits, open_head

PARTITIONS = ([23], [1] * 23, [2, 1, 9, 1, 1, 4, 5], [20, 3])


@pytest.mark.parametrize("family", FAMILIES)
def test_it_agrees_with_its_equations_over_chunks_and_steps(family: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, family, config=FAMILIES[family][1], seed=3)
    opened = open_head(folder)
    tokens, hidden, drafts = draw(opened, drafts=2)
    wanted = reference_of(family, opened).draft(tokens, hidden, drafts)
    for cuts in PARTITIONS:
        found = draft_logits(opened.head, tokens, hidden, drafts, cuts)
        assert np.abs(found - wanted).max() < ALLOWED, cuts
