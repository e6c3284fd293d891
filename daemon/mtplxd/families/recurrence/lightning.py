"""Lightning attention, a linear attention whose heads forget at fixed rates: Bailing's hybrids."""

from __future__ import annotations

from mtplxd.families.recurrence.update import Update

UPDATE = Update(
    name="recurrent_gla",
    along={"q": 2, "k": 2, "v": 2},
    state="h",
    sequential=False,
)

MIXERS = ("bailing_hybrid.LinearAttention", "bailing_moe_linear.LinearAttention")
