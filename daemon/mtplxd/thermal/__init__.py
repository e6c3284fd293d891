"""Fans and heat: when fans are to be held, who asks for them, and the root helper that moves them.

The policy is pure. `fand/` is the helper: it ships as one file of its own, imports only the standard library, and
nothing of this distribution outside its folder. The engine knows nothing of either.
"""
