"""Qwen3.5 and 3.6 with experts: as the dense ones, its experts fused in two tensors, numbered in FP8 releases."""

from __future__ import annotations

from dataclasses import replace

from mtplxd.families.heads.qwen3_5 import FAMILY as DENSE
from mtplxd.families.heads.stored import stack_gated

FAMILY = replace(DENSE, name="qwen3_5_moe", types=frozenset({"qwen3_5_moe"}), convert=(stack_gated,))
