"""Measurement: answers timed in pairs at several depths on the same prompts and seeds, and the rows made of them.

Owns the suites, the order of runs, the sums, and the forwards timed alone that a round is compared with. Bench and tune
use the same measurement. Never decides what stays in memory, never decodes by itself, never saves a loser.
"""
