"""Kimi delta attention: the gated delta rule with a decay a channel, behind one short convolution or three."""

from __future__ import annotations

from mtplxd.families.recurrence.gated_delta import UPDATE as UPDATE

MIXERS = (
    "kimi_linear.KimiDeltaAttention",
    "kimi_k3.KimiK3DeltaAttention",
    "bailing_moe_v3.BailingKDA",
)
