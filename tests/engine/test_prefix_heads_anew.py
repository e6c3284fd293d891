"""A head that began anew behind what was kept leaves none of its part to others: a fresh reading makes another one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mtplxd.engine.batch import Batch, open_batch
from mtplxd.engine.blocks import Block
from mtplxd.engine.request import STORE_WRITE_ONLY
from mtplxd.families.load import LoadedModel
from support.disks import Opened
from support.prefixes import ask, differences, finish, read, read_alone, rounds, some

PROMPT = some(300, 5)
LONGER = [*PROMPT[:256], *some(124, 6)]


@pytest.fixture
def store(tmp_path: Path, tiny_model: LoadedModel) -> Opened:
    """Where only the body's part of PROMPT is known: another head was there when it was read."""
    opened = Opened(tmp_path)
    read(opened.prefixes, ask(of_head(tiny_model, "the one before"), PROMPT))
    opened.settle()
    return opened


def of_head(model: LoadedModel, name: str) -> LoadedModel:
    """The same weights, told to be another head's."""
    return replace(model, content=("body", name))


def slots(batch: Batch, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values of the head's slots."""
    keys, values = batch.head_cache[0].state  # type: ignore[attr-defined]
    return np.array(keys[0, :, first:last]), np.array(values[0, :, first:last])


def test_its_slots_are_of_other_positions_than_a_fresh_readings(
    store: Opened, tiny_model: LoadedModel
) -> None:
    """The values are those of the same pairs; the keys are not, as they are turned by the positions they stand at."""
    request = ask(of_head(tiny_model, "now"), LONGER)
    batch, prefill = read(store.prefixes, request)
    begin = prefill.begin
    assert batch.rows[0].dropped_pairs == begin == 256
    count = batch.head_cache[0].lengths[0]
    assert count == len(LONGER) - 2 - begin
    keys, values = slots(batch, 0, count)
    fresh_keys, fresh_values = slots(read_alone(request), begin, begin + count)
    assert np.allclose(values, fresh_values, atol=1e-4)
    assert not np.allclose(keys, fresh_keys, atol=1e-2)
    store.close()


def test_no_part_of_it_is_kept_of_the_prompt_or_of_the_answer(store: Opened, tiny_model: LoadedModel) -> None:
    request = ask(of_head(tiny_model, "now"), LONGER)
    sought = store.prefixes.seek(request)
    batch = open_batch(request)
    finish(sought.begin(batch))
    rounds(batch, 2, 40)
    sought.keep_turn(batch, 0, quiet=True)
    kept = [store.index.get(sought._chain.whole, place) for place in range(len(LONGER) // 64)]
    assert all(isinstance(block, Block) and block.body and not block.taps for block in kept)
    store.settle()
    text = store.tiers.chain(sought._chain.facts, batch.rows[0].tokens[:-1])
    assert len(text.whole.nodes) > 6
    assert [store.disk.find(name) for name in text.whole.nodes[1:]] == [None] * (len(text.whole.nodes) - 1)
    assert all(store.disk.find(name) for name in text.body.nodes[1:])
    assert read(store.prefixes, ask(of_head(tiny_model, "now"), LONGER))[0].rows[0].dropped_pairs > 0
    store.close()


def test_once_it_is_read_from_the_beginning_it_is_there(store: Opened, tiny_model: LoadedModel) -> None:
    """The bodies' parts that are there are joined with the head's, in memory and on disk."""
    model = of_head(tiny_model, "now")
    read(store.prefixes, ask(model, LONGER))
    store.settle()
    store.forget_memory()
    request = ask(model, LONGER)
    request.store = STORE_WRITE_ONLY
    assert read(store.prefixes, request)[1].begin == 0
    store.settle()
    for forget in (False, True):
        if forget:
            store.forget_memory()
        request = ask(model, [*LONGER[:330], *some(20, 8)])
        batch, prefill = read(store.prefixes, request)
        assert (prefill.begin, batch.rows[0].dropped_pairs) == (320, 0)
        assert differences(batch, read_alone(request)) == []
    store.close()
