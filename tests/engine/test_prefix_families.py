"""Every kind of cache gives back, bit by bit, what a fresh reading makes, and is not changed by the rows it served."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mtplxd.engine import keeping
from mtplxd.engine.keeping import STATE_EVERY
from mtplxd.families.caches import WindowCache
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.families.pieces import has_state
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.bodies import OTHERS, write_body
from support.families import FAMILIES, write_checkpoint
from support.prefixes import (
    ask,
    depth_of,
    differences,
    finish,
    held_arrays,
    prefixes,
    read,
    read_alone,
    rounds,
    some,
)
from support.steering import leaves

BODIES = ["falcon_h1", "gpt_oss", "kimi_k3", "lfm2", "mistral3", "cohere2"]
WINDOWED = ["mimo_v2_flash", "step3p5", "gemma4"]


FIRST = some(200, 1)
PARTED = [*FIRST[:150], *some(60, 2)]
LONGER = [*FIRST, *some(40, 3)]


@pytest.fixture(scope="module", params=[*FAMILIES, *BODIES])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp(request.param) / "pack"
    if request.param in BODIES:
        return load_model(read_pack(write_body(folder, OTHERS[request.param])))
    return load_model(read_pack(write_checkpoint(folder, request.param)))


@pytest.fixture(autouse=True)
def _await_device() -> Iterator[None]:
    yield
    mx.synchronize()


@pytest.mark.parametrize(
    ("prompt", "reproducible"),
    [(PARTED, False), (LONGER, False), (LONGER, True)],
    ids=["parted", "longer", "reproducible"],
)
def test_what_comes_back_is_what_a_fresh_reading_makes(
    model: LoadedModel, prompt: list[int], reproducible: bool
) -> None:
    shared, _ = prefixes()
    depth = depth_of(model)
    read(shared, ask(model, FIRST, depth=depth, reproducible=reproducible))
    request = ask(model, prompt, depth=depth, reproducible=reproducible)
    batch, prefill = read(shared, request)
    expected = 128 if prompt is PARTED else 192 if reproducible else 199
    assert prefill.begin == expected
    alone = read_alone(request)
    if expected % 64 == 0:  # behind a tail the rest is cut at other places
        assert differences(batch, alone) == []
    assert rounds(batch, depth) == rounds(alone, depth)


def test_rows_forked_from_one_prompt_change_neither_it_nor_each_other(model: LoadedModel) -> None:
    shared, index = prefixes()
    depth = depth_of(model)
    first, _ = read(shared, ask(model, FIRST, depth=depth))
    text = rounds(first, depth)
    before = held_arrays(index)
    for prompt in (FIRST, PARTED, FIRST):
        request = ask(model, prompt, depth=depth)
        batch = read(shared, request)[0]
        said = rounds(batch, depth)
        assert said == (text if prompt is FIRST else rounds(read_alone(request), depth))
    again = [array for array in held_arrays(index) if any(np.array_equal(array, one) for one in before)]
    assert len(again) >= len(before)
    batch, prefill = read(shared, ask(model, FIRST, depth=depth))
    assert prefill.begin == 199
    assert differences(batch, read_alone(ask(model, FIRST, depth=depth))) == []


def test_a_prompt_comes_back_in_the_middle_of_another_that_goes_on(model: LoadedModel) -> None:
    """What is kept is a copy: the row it was cut from decodes on, and nothing moves under what is kept."""
    shared, _ = prefixes()
    depth = depth_of(model)
    first, _ = read(shared, ask(model, FIRST, depth=depth))
    second, _ = read(shared, ask(model, FIRST, depth=depth))
    one = [rounds(first, depth, 1), rounds(second, depth, 1)]
    assert one[0] == one[1]
    assert rounds(first, depth, 3) == rounds(second, depth, 3)
    batch, _ = read(shared, ask(model, FIRST, depth=depth))
    assert differences(batch, read_alone(ask(model, FIRST, depth=depth))) == []


def test_long_chunks_are_cut_into_blocks_wherever_the_caches_allow(model: LoadedModel) -> None:
    """A state is known where a chunk ended, and so is what a head of several layers carries on, which begins anew
    elsewhere; slots everywhere."""
    shared, _ = prefixes()
    depth = depth_of(model)
    batch, _ = read(shared, ask(model, FIRST, depth=depth), limit=512)
    ends_only = any(has_state(layer) for layer in batch.cache)
    request = ask(model, PARTED, depth=depth)
    batch, prefill = read(shared, request, limit=512)
    assert prefill.begin == (0 if ends_only else 128)
    assert rounds(batch, depth) == rounds(read_alone(request), depth)
    assert shared.seek(ask(model, FIRST, depth=depth)).known == 199


def test_at_a_mark_every_kind_of_cache_can_part(model: LoadedModel) -> None:
    shared, _ = prefixes()
    depth = depth_of(model)
    request = ask(model, FIRST, depth=depth)
    batch = read_alone(ask(model, FIRST[:1], depth=depth))
    prefill = shared.seek(request).begin(batch)
    prefill.marks.add(128)
    finish(prefill, 512)
    batch, prefill = read(shared, request := ask(model, PARTED, depth=depth), limit=512)
    assert prefill.begin == 128
    assert rounds(batch, depth) == rounds(read_alone(request), depth)


@pytest.mark.parametrize("family", WINDOWED)
@pytest.mark.parametrize("reproducible", [False, True])
def test_windows_come_back_with_what_lies_close_behind_them(
    family: str, reproducible: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Behind more positions than a window and its slack keep, and across a block of forwards of one shape."""
    folder = write_checkpoint(tmp_path_factory.mktemp(family) / "pack", family)
    model = load_model(read_pack(folder))
    depth = depth_of(model)
    shared, _ = prefixes()
    long = some(760, 5)
    read(shared, ask(model, long, depth=depth, reproducible=reproducible))
    for at in (320, 576, 704):
        request = ask(model, [*long[:at], *some(30, at)], depth=depth, reproducible=reproducible)
        request.prompt[at] = (long[at] + 1) % 290
        batch, prefill = read(shared, request)
        assert prefill.begin == at
        windows = [leaf for layer in batch.cache for leaf in leaves(layer) if isinstance(leaf, WindowCache)]
        assert windows
        if at > 600:
            assert all(window.begins[0] > 0 for window in windows)
        alone = read_alone(request)
        assert differences(batch, alone) == []
        assert rounds(batch, depth, 12) == rounds(alone, depth, 12)


def test_states_larger_than_all_beside_them_are_kept_seldom(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "state_bytes", lambda _: 1 << 30)
    model = load_model(read_pack(write_checkpoint(tmp_path_factory.mktemp("wide") / "pack", "qwen3_5")))
    shared, _ = prefixes()
    long = some(700, 6)
    batch, _ = read(shared, ask(model, long, depth=1))
    known = [shared.seek(ask(model, [*long[:end], 0], depth=1)).known for end in range(64, 700, 64)]
    assert sorted({*known}) == [0, STATE_EVERY, 2 * STATE_EVERY, 640]  # and where the prompt ends
    marked = shared.seek(ask(model, marked_prompt := some(700, 8), depth=1)).begin(
        read_alone(ask(model, some(1, 0), depth=1))
    )
    marked.marks.add(128)
    finish(marked)
    known = [shared.seek(ask(model, [*marked_prompt[:end], 0], depth=1)).known for end in (64, 128, 192)]
    assert known == [0, 128, 128]  # where another one parts from it
    request = ask(model, long, depth=1)
    again, prefill = read(shared, request)
    assert prefill.begin == 699
    assert differences(again, batch) == []
