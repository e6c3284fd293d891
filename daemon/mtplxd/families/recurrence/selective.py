"""Mamba 1's selective scan: Jamba, Mamba itself. mlx-lm has it inside the layer, so the layer is what is run again."""

from __future__ import annotations

MIXERS = ("jamba.JambaMambaMixer", "mamba.MambaBlock")
