"""The masks of one round: one a position, each of what its row has said by then, and the matchers back afterwards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from mtplxd.engine.masking import MaskWalk, within_vocab
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.row import Row
from mtplxd.engine.sampling import filter_logits
from mtplxd.platform.mlx import mx
from support.laws import masses
from support.table_matcher import LanguageMatcher, TableLanguage

# 0 (1 0)* 2, with a dead end behind 3; token 4 ends a text.
LANGUAGE = TableLanguage([{0: 1, 3: 3}, {1: 0, 2: 2}, {}, {}], final=frozenset({2}), eos=frozenset({4}))
ANYTHING = [True] * 5
SAMPLER = SamplerSettings(temperature=0.0)


def row_after(language: TableLanguage | None, text: Sequence[int]) -> Row:
    row = Row(list(text), SAMPLER, 3)
    row.matcher = language.after(text) if language else None  # type: ignore[assignment]
    return row


def masks_of(text: Sequence[int]) -> list[list[bool]]:
    """What may follow each beginning of a text, none masked behind its end, its dead end, or outside the language."""
    found = []
    for length in range(len(text) + 1):
        state = LANGUAGE.state(text[:length])
        moves = LANGUAGE.moves[state] if state is not None else {}
        found.append([token in moves for token in range(5)] if moves else ANYTHING)
    return found


def consumed(row: Row) -> list[int] | None:
    return row.matcher.consumed if isinstance(row.matcher, LanguageMatcher) else None


@pytest.mark.parametrize("looked", [0, 1, 2, 4])
@pytest.mark.parametrize(
    "drafts",
    [[0, 1, 0, 1], [0, 2, 4, 0], [0, 4, 1, 0], [4, 4, 4, 4], [3, 0, 1, 0], [0, 1, 3, 2], [0, 1, 0, 2]],
)
def test_each_position_has_the_mask_of_its_draft_history(looked: int, drafts: list[int]) -> None:
    """However many of the masks were made while drafting."""
    rows = [row_after(LANGUAGE, []), row_after(None, []), row_after(LANGUAGE, [0, 1])]
    walk = MaskWalk(rows, 5)
    assert walk.needed
    for token in drafts[:looked]:
        walk.look()
        walk.step([token] * 3)
    found = walk.finish([drafts] * 3)
    assert found.shape == (3, 5, 5)
    assert found[0].tolist() == masks_of(drafts)
    assert found[1].tolist() == [ANYTHING] * 5
    assert found[2].tolist() == masks_of([0, 1, *drafts])[2:]
    assert [consumed(row) for row in rows] == [[], None, [0, 1]]


def test_a_row_is_followed_no_further_than_its_own_drafts_count() -> None:
    """Beyond lie its deeper neighbours' positions: no work for its matcher, and nothing masked."""
    rows = [row_after(LANGUAGE, []), row_after(LANGUAGE, []), row_after(LANGUAGE, [])]
    walk = MaskWalk(rows, 5)
    walk.limits = [0, 1, 4]
    drafts = [0, 1, 0, 1]
    found = walk.finish([drafts] * 3)
    whole = masks_of(drafts)
    assert found[0].tolist() == [whole[0], *[ANYTHING] * 4]
    assert found[1].tolist() == [*whole[:2], *[ANYTHING] * 3]
    assert found[2].tolist() == whole
    assert [consumed(row) for row in rows] == [[], [], []]


def test_a_matcher_that_raises_is_named_and_the_others_masks_stay() -> None:
    class Breaking(LanguageMatcher):
        def mask(self) -> np.ndarray:
            if self.consumed:
                raise RuntimeError("out of order")
            return super().mask()

    rows = [row_after(LANGUAGE, []), row_after(LANGUAGE, [])]
    rows[0].matcher = Breaking(LANGUAGE)  # type: ignore[assignment]
    walk = MaskWalk(rows, 5)
    drafts = [0, 1, 0]
    found = walk.finish([drafts] * 2)
    assert walk.failed == {0}
    assert found[0].tolist() == [masks_of(drafts)[0], *[ANYTHING] * 3]
    assert found[1].tolist() == masks_of(drafts)
    walk.restart()
    assert walk.finish([drafts] * 2)[0].tolist() == [ANYTHING] * 4


def test_a_round_without_drafts_has_one_mask() -> None:
    found = MaskWalk([row_after(LANGUAGE, [0]), row_after(LANGUAGE, [])], 5).finish([[], []])
    assert found.tolist() == [[masks_of([0])[1]], [masks_of([])[0]]]


def test_rows_without_grammars_need_no_masks() -> None:
    assert not MaskWalk([row_after(None, []), row_after(None, [1])], 5).needed


def test_a_walk_begun_anew_has_seen_no_draft() -> None:
    """As when a head fails after its first drafts."""
    rows = [row_after(LANGUAGE, [0])]
    walk = MaskWalk(rows, 5)
    walk.look()
    walk.step([1])
    walk.look()
    walk.step([4])
    walk.restart()
    assert consumed(rows[0]) == [0]
    assert walk.finish([[2, 4]])[0].tolist() == masks_of([0, 2, 4])[1:]
    assert consumed(rows[0]) == [0]


def test_a_reduced_vocabulary_without_an_allowed_id_is_not_masked() -> None:
    mask = np.array([[True, False, True, False, False], [False, False, False, True, False]])
    kept = within_vocab(mask, np.array([0, 1, 4]))
    assert kept.tolist() == [[True, False, False], [True, True, True]]


@pytest.mark.parametrize("allowed", [1, 3, 40])
@pytest.mark.parametrize(
    "sampler",
    [
        SamplerSettings(0.8),
        SamplerSettings(0.8, top_p=0.95),
        SamplerSettings(1.0, top_k=50),
        SamplerSettings(1.3, top_k=50, top_p=0.9, min_p=0.05),
    ],
    ids=["all", "top_p", "top_k", "mixed"],
)
def test_a_masked_law_is_the_law_of_the_allowed_ids_alone(sampler: SamplerSettings, allowed: int) -> None:
    """Where fewer ids are allowed than are ranked, nothing outside is missed, and nothing is ranked twice."""
    rng = np.random.default_rng(allowed)
    ids = np.sort(rng.choice(9000, allowed, replace=False))
    logits = np.full((2, 9000), -np.inf, np.float32)
    logits[:, ids] = rng.normal(0, 2, (2, allowed))
    law = filter_logits(mx.array(logits), sampler)
    alone = filter_logits(mx.array(logits[:, ids]), sampler)
    assert law.sound.tolist() == [True, True]
    assert np.abs(masses(law, 9000)[:, ids] - masses(alone, allowed)).max() < 1e-6
    assert masses(law, 9000).sum() == pytest.approx(2, abs=1e-5)
