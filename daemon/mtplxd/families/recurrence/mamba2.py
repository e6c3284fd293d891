"""Mamba 2's state space: Nemotron-H, Falcon H1, Granite hybrid, Mamba 2 itself.

mlx-lm computes a stretch in one piece, so its last bits depend on where the stretch begins and ends.
"""

from __future__ import annotations

from mtplxd.families.recurrence.update import Update

UPDATE = Update(
    name="ssm_update",
    along={"hidden_states": 1, "B": 1, "C": 1, "dt": 1},
    state="state",
    sequential=False,
)

MIXERS = (
    "nemotron_h.NemotronHMamba2Mixer",
    "falcon_h1.FalconH1Mixer",
    "granitemoehybrid.GraniteMoeHybridMamba2Mixer",
    "mamba2.Mamba2Block",
    "plamo2.Mamba",
)
