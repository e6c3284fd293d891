"""How many tokens a round drafts: acceptance estimated, seconds of a round learnt, the depth that pays best chosen.

Pure: seconds come as arguments, randomness has no part, nothing is read or written. Never decides what a row is allowed
to draft, never touches a batch.
"""

from mtplxd.engine.depth.controller import DepthController
from mtplxd.engine.depth.seen import DraftRoom, RoundSeen, RowSeen

__all__ = ["DepthController", "DraftRoom", "RoundSeen", "RowSeen"]
