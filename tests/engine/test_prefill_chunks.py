"""How a prompt is cut: at absolute multiples, shorter behind a long context, never more scores than the limit."""

from __future__ import annotations

from itertools import pairwise

import pytest
from mtplxd.engine.batch import open_batch
from mtplxd.engine.prefill import CHUNK, SCORES, Prefill, chunk_at
from mtplxd.engine.request import SamplerSettings
from mtplxd.families.load import LoadedModel
from support.listening import ask


def cuts(count: int, chunk: int = CHUNK) -> list[int]:
    begins = [0]
    while begins[-1] < count:
        begins.append(begins[-1] + chunk_at(begins[-1], chunk))
    return begins


def test_a_short_prompt_is_cut_into_whole_chunks() -> None:
    assert cuts(2048) == [0, 512, 1024, 1536, 2048]


@pytest.mark.parametrize("chunk", [CHUNK, 512 * 8, 64, 100, 1])
def test_no_chunk_makes_more_scores_than_the_limit(chunk: int) -> None:
    for begin, end in pairwise(cuts(40_000, chunk) if chunk > 1 else [0, 1, 2]):
        assert (end - begin) * end <= SCORES


def test_chunks_begin_at_multiples_of_their_own_length() -> None:
    assert all(begin % (end - begin) == 0 for begin, end in pairwise(cuts(100_000)))


def test_where_a_prompt_ends_changes_no_cut_before_it() -> None:
    long = cuts(30_000)
    assert cuts(9_000) == long[: len(cuts(9_000))]


def test_a_reproducible_prompt_is_cut_at_the_same_places_whoever_reads_it(tiny_model: LoadedModel) -> None:
    sampler = SamplerSettings(0.8, acceptance="coupled", reproducible=True)
    request = ask(tiny_model, list(range(3, 203)), sampler=sampler)
    for limit in (7, 100, 512):
        ends: list[int] = []
        reading = Prefill(
            open_batch(request), request.prompt, on_chunk=lambda _, end, __, ends=ends: ends.append(end)
        )
        while not reading.finished:
            reading.step(limit)
        assert ends == [64, 128, 192, 199]
