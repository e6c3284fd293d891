"""Times how a random hybrid takes drafts back, beside the round they were in, and beside a forward run again.

    python tests/bench/rollback.py --rounds 12 --depth 3

The body has Qwen3.5-0.8B's widths, 12 layers (9 recurrent) and 32,768 tokens; nothing is drafted, so a round is one
verify forward of depth + 1 positions, its logits' choice, and the roll-back, each awaited by itself. Every count of
kept positions comes up equally often; `share` is the roll-backs' time of all rounds' time, `worst_share` that of the
count that costs most, `rerun_share` what restoring the state and running the kept positions through the body once more
would take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from harness import RESULTS, Journal, Sample, report, run
from mtplxd.families.body import Body
from mtplxd.families.protocols import LayerCache
from mtplxd.families.recurrence import wrap_recurrences
from mtplxd.platform.mlx import Array, mx, tree

PROMPT = 64
WARM_ROUNDS = 2


class CountedBody(Body):
    """Counts the forwards it runs."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.forwards = 0

    def run(self, tokens: Array, cache: list[LayerCache]) -> Any:
        self.forwards += 1
        return super().run(tokens, cache)


def make_config(hidden: int, layers: int) -> dict[str, Any]:
    """A dense hybrid, every fourth layer attention, in the proportions that Qwen3.5-0.8B has at a hidden of 1,024."""
    heads, linear_heads = hidden // 128, hidden // 64
    return {
        "model_type": "qwen3_next", "hidden_size": hidden, "num_hidden_layers": layers,
        "intermediate_size": 7 * hidden // 2, "num_attention_heads": heads, "num_key_value_heads": max(1, heads // 4),
        "head_dim": 256, "vocab_size": 32 * hidden, "linear_num_value_heads": linear_heads,
        "linear_num_key_heads": linear_heads, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25, "max_position_embeddings": 4096, "num_experts": 0, "num_experts_per_tok": 0,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "shared_expert_intermediate_size": 0,
        "moe_intermediate_size": 0, "tie_word_embeddings": True,
    }  # fmt: skip


def make_body(hidden: int, layers: int) -> CountedBody:
    """The hybrid, with random weights in float32."""
    from mlx_lm.models import qwen3_next

    model = qwen3_next.Model(qwen3_next.ModelArgs.from_dict(make_config(hidden, layers)))
    weights = tree.tree_flatten(model.parameters())
    keys = mx.random.split(mx.random.key(0), len(weights))
    model.load_weights(
        [
            (name, mx.random.normal(array.shape, key=key) * 0.02 + (array.ndim == 1))
            for (name, array), key in zip(weights, keys, strict=True)
        ]
    )
    model.eval()
    mx.eval(model.parameters())
    wrap_recurrences(model)
    return CountedBody(model)


def spent(work: Callable[[], Any]) -> float:
    """Milliseconds until what `work` gives is there."""
    begin = time.perf_counter()
    mx.eval(work())
    return 1000 * (time.perf_counter() - begin)


def time_round(body: CountedBody, cache: list[LayerCache], depth: int, kept: int) -> Sample:
    """One round that keeps `kept` positions: its forward, its roll-back, and the other way of going back."""
    begin = cache[0].lengths[0]
    tokens = mx.random.randint(0, body.vocab_size, (1, depth + 1))
    forwards = body.forwards

    def go_back(length: int) -> list[Array]:
        for layer in cache:
            layer.roll_back([length])
        return [array for layer in cache for array in layer.state]

    def verify(part: Array) -> Array:
        return mx.argmax(body.logits(body.run(part, cache)[0]), axis=-1)

    verify_ms = spent(lambda: [verify(tokens), [a for layer in cache for a in layer.state]])
    rollback_ms = spent(lambda: go_back(begin + kept))
    run_in_round = body.forwards - forwards
    go_back(begin)
    rerun_ms = spent(lambda: [verify(tokens[:, :kept]), [a for layer in cache for a in layer.state]])
    return {
        "verify_ms": verify_ms, "rollback_ms": rollback_ms, "rerun_ms": rerun_ms, "forwards": run_in_round
    }  # fmt: skip


def time_kept(body: CountedBody, depth: int, kept: int, rounds: int) -> Sample:
    """Medians over rounds that each keep `kept` of depth + 1 positions."""
    cache = body.make_cache(1)
    mx.eval(body.run(mx.random.randint(0, body.vocab_size, (1, PROMPT)), cache)[0])
    for _ in range(WARM_ROUNDS):
        time_round(body, cache, depth, kept)
    found = [time_round(body, cache, depth, kept) for _ in range(rounds)]
    return {
        **{
            name: median(sample[name] for sample in found)
            for name in ("verify_ms", "rollback_ms", "rerun_ms")
        },
        "forwards": max(sample["forwards"] for sample in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=3, help="drafts of a round")
    parser.add_argument("--rounds", type=int, default=12, help="rounds for each count of kept positions")
    parser.add_argument("--hidden", type=int, default=1024, help="hidden size")
    parser.add_argument("--layers", type=int, default=12, help="layers, every fourth of them attention")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what an interrupted run has measured")
    args = parser.parse_args()
    journal, body = Journal("rollback", args), make_body(args.hidden, args.layers)
    kept = range(1, args.depth + 2)
    samples = [
        journal.take(f"kept {k}", lambda k=k: time_kept(body, args.depth, k, args.rounds)) for k in kept
    ]
    shares = [s["rollback_ms"] / (s["verify_ms"] + s["rollback_ms"]) for s in samples]
    rounds_ms = sum(s["verify_ms"] + s["rollback_ms"] for s in samples)
    summary = {
        "share": sum(s["rollback_ms"] for s in samples) / rounds_ms,
        "worst_share": max(shares),
        "rerun_share": sum(s["rerun_ms"] for s in samples[:-1]) / rounds_ms,
        "round_ms": rounds_ms / len(samples),
        "forwards_a_round": max(s["forwards"] for s in samples),
    }
    report(summary, journal.finish(summary))


if __name__ == "__main__":
    run(main)
