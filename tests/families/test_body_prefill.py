"""A prompt read in chunks of any size leaves body and head where one chunk would have left them, in every family."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mtplxd.engine.batch import Batch
from mtplxd.engine.prefill import prefill
from mtplxd.engine.request import SamplerSettings
from mtplxd.engine.row import Row
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import Array, mx
from support.families import FAMILIES, write_checkpoint

PROMPT = [(place * 29 + 5) % 290 + 3 for place in range(45)]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = write_checkpoint(tmp_path_factory.mktemp(request.param) / "pack", request.param)
    return load_model(read_pack(folder))


def prefilled(model: LoadedModel, chunk: int) -> Batch:
    assert model.head is not None
    cache = model.target.make_cache(1)
    row = Row(list(PROMPT), SamplerSettings(temperature=0.0), 1)
    batch = Batch(model.target, model.head, [row], cache, model.head.make_cache(1, cache))
    assert list(prefill(batch, PROMPT, chunk))[-1] == len(PROMPT) - 1
    return batch


def following(batch: Batch) -> tuple[Array, Array]:
    """Logits of the body's next position, and of the head's first drafts once the pending pair is absorbed."""
    head, [row] = batch.head, batch.rows
    assert head is not None
    assert row.pending is not None
    state = head.absorb(mx.array([row.pending.tokens]), row.pending.joined(), batch.head_cache)[:, -1:]
    drafts = [head.logits(state)]
    for _ in range(1, min(3, head.depth_max)):
        state = head.extend(mx.argmax(drafts[-1][:, -1:], axis=-1), state, batch.head_cache)
        drafts.append(head.logits(state))
    hidden, _ = batch.target.run(mx.array([PROMPT[-1:]]), batch.cache)
    return batch.target.logits(hidden), mx.concatenate(drafts, axis=1)


@pytest.mark.parametrize("chunk", [1, 3, 8, 20])
def test_chunks_leave_what_the_whole_prompt_leaves(model: LoadedModel, chunk: int) -> None:
    whole, cut = prefilled(model, 64), prefilled(model, chunk)
    for batch in (whole, cut):
        assert {tuple(layer.lengths) for layer in batch.cache} == {(len(PROMPT) - 1,)}
        lengths: list[Any] = [layer.lengths for layer in batch.head_cache]
        assert lengths == [[len(PROMPT) - 2 - lag] for lag in range(len(lengths))]
    for found, expected in zip(following(cut), following(whole), strict=True):
        one, other = np.array(found), np.array(expected)
        assert np.abs(one - other).max() <= 2e-4 * np.abs(other).max()
