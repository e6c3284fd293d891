"""The caches of a body's and a head's layers: what of a text each remembers, and how it goes back.

They speak mlx-lm's cache protocol, so that its model classes run on them unchanged, and stand in for its own caches,
which cannot all go back. Which layer feeds them, and what the rows mean, is not theirs.
"""

from mtplxd.families.caches.build import make_caches
from mtplxd.families.caches.row import RowCache

__all__ = ["RowCache", "make_caches"]
