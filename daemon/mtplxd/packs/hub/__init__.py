"""Packs from the Hub: a repository judged from afar, pulled whole and checked, and what its cache already holds.

What the files mean, and what a pack is worth, is said once for all packs, in the room around it.
"""
