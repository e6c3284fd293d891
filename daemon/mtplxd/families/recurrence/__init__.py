"""Recurrent layers of mlx-lm's bodies, made to go back within a forward without another one.

Owns which layers these are, what a forward of theirs leaves behind, and the check at load that a replay gives what the
layer itself would have. The states are in families/caches; what is committed is the engine's.
"""

from mtplxd.families.recurrence.wrap import wrap_recurrences

__all__ = ["wrap_recurrences"]
