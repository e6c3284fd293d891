"""Everything about model folders that needs no MLX: names, bytes, fingerprints, tiers, fetching, conversion.

It reads headers and tables and never runs a model. There is one resolver from a name to a pack, one detector
of heads and one place (`tiers`) that judges a pack, for the daemon and its clients alike.
"""
