"""The gated delta rule with one decay a head: Qwen3-Next, Qwen3.5 and what follows them, OLMo hybrid."""

from __future__ import annotations

from mtplxd.families.recurrence.update import Update

UPDATE = Update(
    name="gated_delta_update",
    along={"q": 1, "k": 1, "v": 1, "a": 1, "b": 1},
    state="state",
    sequential=True,
)

MIXERS = ("qwen3_next.Qwen3NextGatedDeltaNet", "qwen3_5.GatedDeltaNet", "olmo_hybrid.GatedDeltaNet")
