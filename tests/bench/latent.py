"""Times short forwards of one latent attention at GLM-4.7-Flash's sizes, absorbed and as mlx-lm has them, in turn.

    python tests/bench/latent.py --slots 4096 --repeats 15

One layer, float32, random weights, nothing but the attention. Every way runs on its own full cache, once a turn, and is
rolled back after; mlx-lm's on mlx-lm's cache, ours on ours. Figures are medians over the turns. `speedup` is mlx-lm's
forward of that length over ours; `of_a_step` is ours over mlx-lm's own step of one position, `of_our_step` over ours.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from harness import RESULTS, Journal, Sample, report, run
from mtplxd.families.caches import RowCache
from mtplxd.families.latent import absorb_latent
from mtplxd.platform.mlx import Array, blas, mx

LENGTHS = (1, 2, 4, 8)
SEEN = 4
"""The length that the gates are about: a draft depth of three."""
MIN_SPEEDUP, MAX_OF_A_STEP = 5.0, 1.7


class Way:
    """One attention on a cache of its own, holding the same random latents as the other."""

    def __init__(self, attention: Any, cache: Any, roll_back: Callable[[Any, int], None], slots: int) -> None:
        self._attention, self._cache, self._roll_back, self._slots = attention, cache, roll_back, slots
        config = attention.config
        keys = mx.random.split(mx.random.key(slots), 2)
        room = slots + max(LENGTHS)  # so that no timed forward has to make room
        latents = mx.random.normal((1, 1, room, config.kv_lora_rank), key=keys[0])
        positions = mx.random.normal((1, 1, room, config.qk_rope_head_dim), key=keys[1])
        cache.update_and_fetch(latents, positions)
        roll_back(cache, max(LENGTHS))
        mx.eval(cache.keys, cache.values)

    def forward(self, x: Array) -> tuple[float, Array]:
        """Milliseconds and output of one forward, with the mask a model makes for it once for all its layers."""
        mask = self._cache.make_mask(x.shape[1], return_array=True, window_size=None)
        if mask is not None:
            mx.eval(mask)
        begin = time.perf_counter()
        output = self._attention(x, mask, self._cache)
        mx.eval(output)
        took = time.perf_counter() - begin
        self._roll_back(self._cache, x.shape[1])
        return 1e3 * took, output


def make_ways(slots: int) -> dict[str, Way]:
    from mlx_lm.models.cache import KVCache
    from mlx_lm.models.glm4_moe_lite import Glm4MoeLiteAttention, ModelArgs

    stock, ours = (Glm4MoeLiteAttention(ModelArgs(num_attention_heads=20)) for _ in range(2))
    ours.update(stock.parameters())
    mx.eval(stock.parameters())
    for reason in absorb_latent(ours):
        raise SystemExit(f"error: {reason}")
    return {
        "mlx_lm": Way(stock, KVCache(), lambda cache, count: cache.trim(count), slots),
        "ours": Way(ours, RowCache(), lambda cache, count: cache.roll_back([cache.offset - count]), slots),
    }


def take_turn(ways: dict[str, Way], turn: int) -> Sample:
    """Milliseconds of each length and way, and how far the two are apart at most."""
    times: Sample = {}
    apart = 0.0
    for length in LENGTHS:
        x = mx.random.normal((1, length, 2048), key=mx.random.key(turn))
        mx.eval(x)
        outputs = {}
        for name in sorted(ways, reverse=bool(turn % 2)):
            times[f"{name}_{length}"], outputs[name] = ways[name].forward(x)
        apart = max(apart, mx.abs(outputs["ours"] - outputs["mlx_lm"]).max().item())
    return {**times, "apart": apart}


def summarise(samples: list[Sample]) -> dict[str, Any]:
    def of(name: str, length: int) -> float:
        return median(sample[f"{name}_{length}"] for sample in samples)

    found: dict[str, Any] = {}
    for length in LENGTHS:
        found[f"mlx_lm_ms_{length}"], found[f"ours_ms_{length}"] = of("mlx_lm", length), of("ours", length)
        found[f"speedup_{length}"] = of("mlx_lm", length) / of("ours", length)
        found[f"of_a_step_{length}"] = of("ours", length) / of("mlx_lm", 1)
        found[f"of_our_step_{length}"] = of("ours", length) / of("ours", 1)
    found["largest_difference"] = max(sample["apart"] for sample in samples)
    found["blas"] = blas.name
    found["reached"] = found[f"speedup_{SEEN}"] >= MIN_SPEEDUP and found[f"of_a_step_{SEEN}"] <= MAX_OF_A_STEP
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="times short forwards of a latent attention")
    parser.add_argument("--slots", type=int, default=4096, help="filled slots of the cache")
    parser.add_argument("--repeats", type=int, default=15, help="turns, behind one that is not counted")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    args = parser.parse_args()
    journal = Journal("latent", args)
    ways = make_ways(args.slots)
    take_turn(ways, 0)
    samples = [journal.take(str(turn), partial(take_turn, ways, turn)) for turn in range(1, args.repeats + 1)]
    summary = summarise(samples)
    report(summary, journal.finish(summary))


if __name__ == "__main__":
    run(main)
