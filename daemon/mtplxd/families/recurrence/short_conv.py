"""Layers whose whole memory is a short convolution's: LFM2, Gear. Going back is a slice of what the convolution saw."""

from __future__ import annotations

MIXERS = ("lfm2.ShortConv", "lfm2_moe.ShortConv", "gear.ConvKVGatedMixer")
