"""Attention over a latent cache (MLA) for the few positions a verify has. Owns no weights and no caches.

mlx-lm's classes keep one latent per slot and, for more than one position, spread the whole cache out into every head's
keys and values before attending, which makes a verify of two positions as dear as a long chunk. Here the spreading
goes to the queries instead (`absorbed`), which is the same sum in another order.
"""

from mtplxd.families.latent.install import absorb_latent

__all__ = ["absorb_latent"]
