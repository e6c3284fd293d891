"""The forwards timed alone: which they are, over how many pairs, and that they leave the caches as long as asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mtplxd.engine.batch import Batch
from mtplxd.engine.engine import Engine
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import read_pack
from mtplxd.tune.ideal import REPEATS, time_ideal_round
from support.families import write_checkpoint

PROMPT = list(range(3, 40))


class Watched:
    """Passes calls on to a body or a head and writes down their shapes."""

    def __init__(self, inner: Any, lengths: Any) -> None:
        self._inner, self._lengths = inner, lengths
        self.calls: list[tuple[str, int, int]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in ("run", "absorb", "extend", "logits"):
            return method

        def call(first: Any, *rest: Any) -> Any:
            self.calls.append((name, first.shape[1], self._lengths()))
            return method(first, *rest)

        return call


def answered_batch(engine: Engine, model: LoadedModel, depth: int, tokens: int) -> Batch:
    kept: list[Batch] = []
    sampler = SamplerSettings(temperature=0.6, top_p=0.95, seed=1)
    request = Request("ideal", "test", model, list(PROMPT), sampler, tokens, ignore_eos=True, depth=depth)
    engine.run_inline(request, lambda _: None, None, kept.append)
    return kept[0]


@pytest.mark.parametrize(("depth", "pairs"), [(0, 1.0), (1, 1.4), (3, 2.5)])
def test_a_round_is_one_verify_and_as_many_drafts_as_deep(
    engine: Engine, model: LoadedModel, depth: int, pairs: float
) -> None:
    def work() -> tuple[list[Any], list[Any], list[int]]:
        batch = answered_batch(engine, model, depth, 24)
        body = Watched(batch.target, lambda: batch.cache[0].lengths[0])
        head = Watched(batch.head, lambda: batch.head_cache[0].lengths[0])
        batch.target, batch.head = body, head if depth else None
        assert time_ideal_round(batch, depth, pairs, 45, lambda: None) > 0
        return body.calls, head.calls, [layer.lengths[0] for layer in batch.cache]

    body, head, lengths = engine.call(work, "testing").result()
    assert set(lengths) == {45}
    assert [call for call in body if call[0] == "run"] == [("run", depth + 1, 45)] * (REPEATS + 2)
    assert [call[1] for call in body if call[0] == "logits"] == [depth + 1] * (REPEATS + 1)
    absorbed = [call for call in head if call[0] == "absorb"]
    assert len(absorbed) == (REPEATS + 1 if depth else 0)
    assert len([call for call in head if call[0] == "extend"]) == max(depth - 1, 0) * (REPEATS + 1)
    assert len([call for call in head if call[0] == "logits"]) == depth * (REPEATS + 1)
    if depth:
        assert {begin for _, _, begin in absorbed} == {45}
        mean = sum(count for _, count, _ in absorbed) / len(absorbed)
        assert abs(mean - pairs) < 1 / len(absorbed)


def test_a_cache_shorter_than_asked_is_taken_as_it_is(engine: Engine, model: LoadedModel) -> None:
    def work() -> int:
        batch = answered_batch(engine, model, 1, 4)
        time_ideal_round(batch, 1, 1.0, 10_000, lambda: None)
        return batch.cache[0].lengths[0]

    assert engine.call(work, "testing").result() == len(PROMPT) + 3


@pytest.mark.parametrize("family", ["qwen3_5", "step3p5", "mimo_v2_flash", "deepseek_v32"])
def test_caches_that_cannot_go_back_so_far_are_timed_at_the_answers_end(
    engine: Engine, family: str, tmp_path: Path
) -> None:
    pack = read_pack(write_checkpoint(tmp_path / "pack", family))
    model = engine.call(lambda: load_model(pack), "loading").result()

    def work() -> tuple[list[list[int]], list[list[int]], float]:
        batch = answered_batch(engine, model, 3, 24)
        layers = [*batch.cache, *batch.head_cache]
        before = [list(layer.lengths) for layer in layers]
        spent = time_ideal_round(batch, 3, 2.5, 45, lambda: None)
        return before, [list(layer.lengths) for layer in layers], spent

    before, after, spent = engine.call(work, "testing").result()
    assert before == after
    assert spent > 0
