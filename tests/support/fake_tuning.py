"""A tuning as a daemon tells it: depth 2 wins."""

from __future__ import annotations

from typing import Any

from mtplx_proto.v1 import common_pb2, tuning_pb2


def tuned(**decision: Any) -> tuning_pb2.TuneReply:
    """Fields of the decision may be given."""
    told = {
        "suite": "mixed",
        "context": 41,
        "fan_mode": "not-available",
        "thermal": "nominal",
        "power": "normal",
    }
    made = {
        "depth": 2,
        "saved": True,
        "verdict": "depth_wins",
        "message": "depth 2 decodes at 1.42 × plain; saved",
    }
    row = tuning_pb2.TuneRow
    return tuning_pb2.TuneReply(
        model="smollm2-135m",
        machine=tuning_pb2.Machine(
            chip="Apple M4", memory=16 << 30, bandwidth_gb_s=98.4, cores=10, os="macOS 15.1", python="3.12.1",
            mlx="0.32", blas="Accelerate", power="normal", thermal="nominal",
        ),
        key="0a1b-2c3d",
        rows=[
            row(depth=0, tok_s=50.0, ratio=1.0, ci95=[1.0, 1.0], tokens_per_round=1.0, round_ms=20.0, rounds=512,
                prompts=8, **told),
            row(depth=2, tok_s=71.0, ratio=1.42, ci95=[1.31, 1.54], tokens_per_round=1.75, round_ms=24.5, rounds=293,
                prompts=8, acceptance_by_position=[0.5, 0.25], **told),
            row(auto=True, tok_s=70.0, rounds=290, prompts=3, **told),
        ],
        drift=tuning_pb2.Drift(start=50.0, middle=49.5, end=48.0, change=-0.04, held_s=92.0, took_s=92.0),
        decision=tuning_pb2.TuneDecision(**(made | decision)),
        sampler=common_pb2.Sampler(temperature=0.5, top_p=0.75, acceptance="block", repetition_penalty=1),
        suite="mixed",
        max_tokens=64,
        order=["0:0", "0:2"],
        notes=["depth 9 clipped to 8: the head's limit is 8"],
        measured_at="2026-01-31T12:00:00+00:00",
        fingerprint_body="sha256:0b0d",
        fingerprint_head="sha256:4ead",
    )  # fmt: skip
