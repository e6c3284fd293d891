"""The caches of a body's and a head's layers: what of a text each remembers, and how it goes back.

They speak mlx-lm's cache protocol, so that its model classes run on them unchanged, and stand in for its own caches,
which cannot all go back. Which layer feeds them, and what the rows mean, is not theirs.
"""

from mtplxd.families.caches.build import counterpart, make_caches
from mtplxd.families.caches.pair import PairCache
from mtplxd.families.caches.row import RowCache
from mtplxd.families.caches.slots import without
from mtplxd.families.caches.state import StateCache
from mtplxd.families.caches.window import WindowCache

__all__ = ["PairCache", "RowCache", "StateCache", "WindowCache", "counterpart", "make_caches", "without"]
