"""The model families: bodies built on mlx-lm's classes, their heads, how a head is fed, and how their caches roll back.

Owns the modules and the key/value rows; knows nothing of sampling, requests or files' key tables (those are `packs`).
"""
